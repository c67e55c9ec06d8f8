// Where a batch size stands, what is tried after it, and what a command becomes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "launcher/batch/adjustable.h"
#include "launcher/batch/sizes.h"
#include "launcher/failure.h"

namespace accel {
namespace {

using Words = std::vector<std::string>;

Command command(Words words) { return {std::move(words), {}, {}}; }

Words written(const std::string& carrier, Words words, std::int64_t number) {
  Command changed = command(std::move(words));
  Carrier::parse(carrier, "{batch}").write(changed, number);
  return changed.words;
}
std::optional<std::int64_t> read(const std::string& carrier, Words words) {
  return Carrier::parse(carrier, "{batch}").read(command(std::move(words)));
}
std::string refusal(const std::string& carrier, Words words) {
  try {
    read(carrier, std::move(words));
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), 64);
    return failure.what();
  }
  return "none";
}

TEST(Carrier, FindsAFlagInEachOfItsForms) {
  EXPECT_EQ(read("arg:--batch", {"t", "--batch", "64"}), 64);
  EXPECT_EQ(read("arg:--batch", {"t", "--batch=64"}), 64);
  EXPECT_EQ(read("arg:-b", {"t", "-b64"}), 64);
  EXPECT_EQ(read("arg:-b", {"t", "-b", "64"}), 64);
  EXPECT_EQ(read("arg:batch=", {"t", "batch=64"}), 64);
  EXPECT_EQ(read("arg:*micro_batch_size=", {"t", "model.micro_batch_size=4"}), 4);
  EXPECT_EQ(read("arg:SOLVER.IMS_PER_BATCH", {"t", "SOLVER.IMS_PER_BATCH", "16"}), 16);
  EXPECT_EQ(read("pos:2", {"run.sh", "a", "8192"}), 8192);
  EXPECT_EQ(read("pos:-1", {"run.sh", "a", "8192"}), 8192);
  EXPECT_EQ(read("arg:--accum?1", {"t"}), 1);
  EXPECT_EQ(read("arg:--accum", {"t"}), std::nullopt);
  EXPECT_EQ(read("arg:-b", {"t", "-batch", "64"}), std::nullopt) << "another flag";
  EXPECT_EQ(read("128", {"t", "{batch}"}), 128);
}

TEST(Carrier, ChangesNothingElse) {
  EXPECT_EQ(written("arg:--batch", {"t", "--batch", "64", "--lr", "64"}, 32),
            (Words{"t", "--batch", "32", "--lr", "64"}));
  EXPECT_EQ(written("arg:--batch", {"t", "--batch=64"}, 32), (Words{"t", "--batch=32"}));
  EXPECT_EQ(written("arg:-b", {"t", "-b64"}, 32), (Words{"t", "-b32"}));
  EXPECT_EQ(written("arg:batch=", {"t", "batch=64"}, 32), (Words{"t", "batch=32"}));
  EXPECT_EQ(written("pos:1", {"run.sh", "64"}, 32), (Words{"run.sh", "32"}));
  EXPECT_EQ(written("arg:--accum?1", {"t"}, 2), (Words{"t", "--accum", "2"}));
  EXPECT_EQ(written("arg:accum=?1", {"t"}, 2), (Words{"t", "accum=2"}));
  EXPECT_EQ(written("64", {"t", "x{batch}y{batch}"}, 32), (Words{"t", "x32y32"}));
}

TEST(Carrier, OfSeveralTheLastCounts) {
  EXPECT_EQ(read("arg:--batch", {"t", "--batch", "8", "--batch", "64"}), 64);
  EXPECT_EQ(written("arg:--batch", {"t", "--batch", "8", "--batch", "64"}, 32),
            (Words{"t", "--batch", "8", "--batch", "32"}));
  EXPECT_EQ(written("arg:--batch", {"t", "--batch", "64", "--batch=64"}, 32),
            (Words{"t", "--batch", "32", "--batch=32"}));
}

TEST(Carrier, SaysWhatIsWrong) {
  EXPECT_EQ(refusal("arg:--batch", {"t", "--batch", "auto"}),
            "arg:--batch is auto in the command, but a whole number is needed");
  EXPECT_EQ(refusal("pos:7", {"t", "1"}),
            "pos:7: the command has no such word; its words are numbered from 0 to 1");
  EXPECT_EQ(refusal("flag:--batch", {"t"}),
            "flag:--batch is not where a number can be: expected arg:--flag, arg:key=, pos:N, env:NAME, "
            "yaml:|json:|toml:FILE#key, or a number, which stands for {batch} in the command");
  EXPECT_EQ(refusal("yaml:x.yaml", {"t"}), "yaml:x.yaml: expected yaml:FILE#dotted.key");
  EXPECT_EQ(refusal("yaml:/nowhere.yaml#batch", {"t"}),
            "yaml:/nowhere.yaml#batch: /nowhere.yaml cannot be read");
}

TEST(Carrier, ReadsAndSetsTheEnvironment) {
  setenv("ACCEL_TEST_BATCH", "64", 1);
  const Carrier carrier = Carrier::parse("env:ACCEL_TEST_BATCH", "{batch}");
  Command changed = command({"t"});
  EXPECT_EQ(carrier.read(changed), 64);
  carrier.write(changed, 32);
  EXPECT_EQ(carrier.read(changed), 32);
  EXPECT_EQ(changed.environment.at("ACCEL_TEST_BATCH"), "32");
  EXPECT_STREQ(getenv("ACCEL_TEST_BATCH"), "64") << "our own stays";
}

TEST(ConfigFile, OnlyTheNumberChanges) {
  const std::string yaml =
      "# größe\ntrainer:\n  lr: 1e-3   # rate\n  micro_batch: 16 # per GPU\n  list: [{n: 4}, 5]\n";
  EXPECT_EQ(number_in(yaml, FileFormat::Yaml, "trainer.micro_batch", "f"), 16);
  EXPECT_EQ(with_number(yaml, FileFormat::Yaml, "trainer.micro_batch", 8, "f"),
            "# größe\ntrainer:\n  lr: 1e-3   # rate\n  micro_batch: 8 # per GPU\n  list: [{n: 4}, 5]\n");
  EXPECT_EQ(number_in(yaml, FileFormat::Yaml, "trainer.list.0.n", "f"), 4);
  EXPECT_EQ(number_in(yaml, FileFormat::Yaml, "trainer.list.1", "f"), 5);
  EXPECT_EQ(number_in(yaml, FileFormat::Yaml, "trainer.nothing", "f"), std::nullopt);

  const std::string json = "{\n  \"ds\": {\"train_micro_batch_size_per_gpu\":  4, \"x\": [1, 2]}\n}";
  EXPECT_EQ(with_number(json, FileFormat::Json, "ds.train_micro_batch_size_per_gpu", 2, "f"),
            "{\n  \"ds\": {\"train_micro_batch_size_per_gpu\":  2, \"x\": [1, 2]}\n}");

  const std::string toml =
      "title = \"batch 9\" # größe\n[training]\nlocal_batch_size = 128 # a GPU\nsteps=10\n";
  EXPECT_EQ(with_number(toml, FileFormat::Toml, "training.local_batch_size", 64, "f"),
            "title = \"batch 9\" # größe\n[training]\nlocal_batch_size = 64 # a GPU\nsteps=10\n");
}

TEST(ConfigFile, SaysWhatIsWrong) {
  const auto message = [](const std::string& text, FileFormat format, const std::string& key) -> std::string {
    try {
      number_in(text, format, key, "f");
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "none";
  };
  EXPECT_EQ(message("batch: auto\n", FileFormat::Yaml, "batch"),
            "f: batch is auto, but a whole number is needed");
  EXPECT_EQ(message("batch: [1]\n", FileFormat::Yaml, "batch"),
            "f: batch is no single value, but a whole number is needed");
  EXPECT_EQ(message("batch: [", FileFormat::Yaml, "batch").rfind("f is not YAML: ", 0), 0u);
  EXPECT_EQ(message("batch = ", FileFormat::Toml, "batch").rfind("f is not TOML: ", 0), 0u);
}

SizePolicy policy(Rule rule, const std::string& reduction = "half", Keep keep = Keep::Prefer) {
  SizePolicy result;
  result.rule = rule;
  result.reduction = *Reduction::parse(reduction);
  result.keep = keep;
  return result;
}

std::vector<std::int64_t> batches(const SizePolicy& policy, Sizes sizes) {
  std::vector<Attempt> attempts{{sizes, 0, 0, false}};
  std::vector<std::int64_t> result;
  while (const auto next = next_sizes(policy, attempts)) {
    result.push_back(micro_batch(policy.rule, *next));
    attempts.push_back({*next, 0, 0, false});
  }
  return result;
}

TEST(Sizes, HalvesUntilNothingIsLeft) {
  EXPECT_EQ(batches(policy(Rule::MicroAndAccumulation), {16, 1}), (std::vector<std::int64_t>{8, 4, 2, 1}));
  EXPECT_EQ(batches(policy(Rule::GlobalOnly, "0.9"), {10}),
            (std::vector<std::int64_t>{9, 8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(batches(policy(Rule::GlobalOnly, "pow2:2"), {64}),
            (std::vector<std::int64_t>{48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1}));
  SizePolicy bounded = policy(Rule::GlobalOnly);
  bounded.min_batch = 8;
  EXPECT_EQ(batches(bounded, {64}), (std::vector<std::int64_t>{32, 16, 8}));
}

TEST(Sizes, WhatAStepComesToStaysTheSame) {
  for (std::int64_t batch = 1; batch <= 96; ++batch) {
    for (std::int64_t accumulation = 1; accumulation <= 6; ++accumulation) {
      Sizes sizes{batch, accumulation};
      std::vector<Attempt> attempts{{sizes, 0, 0, false}};
      const SizePolicy strict = policy(Rule::MicroAndAccumulation, "half", Keep::Require);
      while (const auto next = next_sizes(strict, attempts)) {
        EXPECT_EQ(next->batch * next->accumulation, batch * accumulation);
        EXPECT_LE(next->batch * 2, attempts.back().sizes.batch) << "not above half";
        attempts.push_back({*next, 0, 0, false});
      }
    }
  }
}

TEST(Sizes, OddOnesMayChangeTheStepAndSaySo) {
  const auto next = next_sizes(policy(Rule::MicroAndAccumulation), {{{47, 1}, 0, 0, false}});
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, (Sizes{23, 2})) << "1 × 47 would keep it, at 47 times the steps";
  EXPECT_EQ(examples_a_step(Rule::MicroAndAccumulation, *next), 46);
  EXPECT_EQ(next_sizes(policy(Rule::MicroAndAccumulation, "half", Keep::Off), {{{48, 1}, 0, 0, false}}),
            (Sizes{24, 1}));
}

TEST(Sizes, EachRuleKeepsWhatItCan) {
  EXPECT_EQ(next_sizes(policy(Rule::MicroAndGlobal), {{{8, 1, 512}, 0, 0, false}}), (Sizes{4, 1, 512}));
  EXPECT_EQ(next_sizes(policy(Rule::MicroAndGlobal, "pow2:2"), {{{8, 1, 64}, 0, 0, false}}),
            (Sizes{4, 1, 64}))
      << "6 does not divide 64";
  EXPECT_EQ(next_sizes(policy(Rule::Divided), {{{256, 4}, 0, 0, false}}), (Sizes{256, 8}));
  EXPECT_EQ(next_sizes(policy(Rule::GlobalOnly), {{{256}, 0, 0, false}}), (Sizes{128}));
  EXPECT_EQ(next_sizes(policy(Rule::Tokens), {{{4096, 1}, 0, 0, false}}), (Sizes{2048, 2}));
  EXPECT_EQ(next_sizes(policy(Rule::BuiltIn), {{{8}, 0, 0, false}}), (Sizes{4}));
}

TEST(Sizes, LearnsFromWhatItHasSeen) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  // 2 GiB for all and 1 GiB an example: 8 GiB hold 6.
  const std::vector<Attempt> seen = {{{64, 1}, 66 * kGiB, 8 * kGiB, false},
                                     {{32, 2}, 34 * kGiB, 8 * kGiB, false}};
  EXPECT_EQ(next_sizes(policy(Rule::GlobalOnly, "fit"), seen)->batch, 6);
  EXPECT_EQ(next_sizes(policy(Rule::GlobalOnly, "fit"), {seen[0]})->batch, 32) << "one point is no line";
  EXPECT_EQ(next_sizes(policy(Rule::GlobalOnly, "bisect"), {{{16}, 0, 0, true}, {{64}, 0, 0, false}})->batch,
            40);
}

TEST(Sizes, ReductionsAreParsed) {
  for (const char* wrong : {"", "2", "0", "-0.5", "pow2:", "pow2:0", "pow2:x", "third"})
    EXPECT_FALSE(Reduction::parse(wrong)) << wrong;
}

std::string name_of_program(Words words) {
  const auto known = recognise(command(std::move(words)));
  return known ? known->name : "";
}

TEST(Trainers, AreRecognisedByTheirCommand) {
  EXPECT_EQ(name_of_program({"torchrun", "run.py", "--per_device_train_batch_size", "8"}),
            "Hugging Face Trainer");
  EXPECT_EQ(name_of_program({"/usr/bin/llamafactory-cli", "train", "a/b.yaml"}), "LLaMA-Factory");
  EXPECT_EQ(name_of_program({"mpirun", "./train_gpt2cu", "-b", "16", "-d", "524288"}), "llm.c");
  EXPECT_EQ(name_of_program({"p.py", "--micro-batch-size", "4", "--global-batch-size=64"}), "Megatron-LM");
  EXPECT_EQ(name_of_program({"t.py", "trainer.micro_batch_size=4", "trainer.global_batch_size=64"}), "NeMo");
  EXPECT_EQ(name_of_program({"fairseq-train", "x", "--max-tokens", "4096"}), "fairseq");
  EXPECT_EQ(name_of_program({"./train", "--batch-size", "8"}), "") << "too common to be sure";
  EXPECT_EQ(guesses(command({"./train", "--batch-size", "8"})), (Words{"arg:--batch-size"}));
  EXPECT_EQ(guesses(command({"./train", "--batch-size", "auto"})), (Words{}));
}

/// Each line of the table can be read: its carriers parse.
TEST(Trainers, TheTableIsSound) {
  for (const std::string& name : trainer_names()) {
    const auto knobs = trainer_named(name);
    ASSERT_TRUE(knobs);
    for (const std::string& text : {knobs->batch, knobs->accumulation, knobs->global, knobs->evaluation}) {
      if (text.empty()) continue;
      EXPECT_NO_THROW(Carrier::parse(text, "{batch}")) << name << ": " << text;
    }
    EXPECT_FALSE(knobs->batch.empty()) << name;
  }
}

TEST(Adjustable, ChangesOnlyWhatIsToChange) {
  const std::string file = ::testing::TempDir() + "accel_batch_test.yaml";
  std::ofstream(file) << "per_device_train_batch_size: 8\ngradient_accumulation_steps: 2\n";
  const Command original = command({"llamafactory-cli", "train", file});
  const Adjustable adjustable(original, *recognise(original));
  EXPECT_EQ(adjustable.sizes(), (Sizes{8, 2}));
  EXPECT_EQ(adjustable.with({8, 2}), original);
  Command changed = adjustable.with({4, 4});
  EXPECT_EQ(changed.copies.at(file), "per_device_train_batch_size: 4\ngradient_accumulation_steps: 4\n");
  std::string copy;
  {
    const Copies copies(changed);
    copy = changed.words[2];
    EXPECT_NE(copy, file);
    std::string line;
    std::getline(std::ifstream(copy), line);
    EXPECT_EQ(line, "per_device_train_batch_size: 4");
  }
  EXPECT_FALSE(std::ifstream(copy).good()) << "gone with the attempt";
  std::string line;
  std::getline(std::ifstream(file), line);
  EXPECT_EQ(line, "per_device_train_batch_size: 8") << "the user's own is never changed";
}

}  // namespace
}  // namespace accel
