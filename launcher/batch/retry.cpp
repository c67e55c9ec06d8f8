#include "launcher/batch/retry.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launcher/batch/adjustable.h"
#include "launcher/batch/between_attempts.h"
#include "launcher/batch/memory_of_sizes.h"
#include "launcher/failure.h"
#include "launcher/host_memory.h"
#include "launcher/language.h"
#include "report/log.h"
#include "report/report.h"

namespace accel {
namespace {

using Json = nlohmann::json;

/// What ran out where.
struct Shortage {
  int rank = -1;
  int ranks = 0;
  std::string host;
  MemoryEpisode memory{};

  static Shortage of(const Watch::Fault& fault) {
    Shortage shortage;
    shortage.rank = fault.subject.world_rank;
    shortage.ranks = fault.subject.world_size;
    shortage.host = fault.subject.host;
    shortage.memory = fault.verdict.memory.value_or(MemoryEpisode{});
    return shortage;
  }

  std::string text() const {
    const std::string asked = memory.bytes != 0 ? size_text(static_cast<std::int64_t>(memory.bytes))
                                                : std::string(name_of(memory.function));
    return words("rank {} of {} on {}, GPU {}: asked for {}, {} of {} free",
                 "{} 号进程（共 {} 个，主机 {}），GPU {}："
                 "申请 {}，空闲 {}，总共 {}",
                 rank, ranks, host, memory.device, asked, size_text(static_cast<std::int64_t>(memory.free)),
                 size_text(static_cast<std::int64_t>(memory.total)));
  }
};

class Retries {
 public:
  explicit Retries(const RetryRequest& request) : request_(request) {
    if (!request.knobs.batch.empty() && !request.guessed)
      adjustable_.emplace(Command{request.job.command, {}, {}}, request.knobs);
  }

  int run() {
    if (adjustable_) sizes_ = first_sizes();
    if (request_.output.wanted()) output_.emplace(request_.output);
    for (;;) {
      ++number_;
      const std::optional<std::int64_t> kills = oom_kills();
      const JobOutcome outcome = attempt();
      if (!is_out_of_memory(outcome, kills)) return finish(outcome);
      if (outcome.fault && outcome.fault->verdict.memory) note(*outcome.fault);
      if (!adjustable_) return without_knobs(outcome);
      const std::optional<Sizes> next = next_attempt();
      if (!next)
        return give_up(
            words("No executable batch size found, reached zero.", "找不到可执行的 batch size，已减到零。"));
      if (request_.on_oom == OnOom::Report) return propose(outcome, *next);
      if (request_.max_attempts > 0 && number_ >= request_.max_attempts && request_.on_oom == OnOom::Retry)
        return give_up(words("Still out of memory after {} attempts (--max-attempts).",
                             "已尝试 {} 次（--max-attempts），显存仍然不足。", number_));
      if (request_.on_oom == OnOom::Requeue) return requeue(*next);
      clear_away();
      const double back = wait_for_memory(outcome.ranks);
      if (const int signal = signals_.ending()) return 128 + signal;
      announce(*next, back);
      sizes_ = *next;
    }
  }

 private:
  Sizes first_sizes() {
    Sizes sizes = adjustable_->sizes();
    if (request_.on_oom == OnOom::Requeue) {
      std::ifstream stream(request_.state_file);
      const Json state = Json::parse(stream, nullptr, false);
      if (state.is_object() && state.value("command", "") == quoted(request_.job.command)) {
        sizes = sizes_from(state, sizes);
        resumed_ = true;
      }
    }
    if (request_.reuse) {
      if (const auto known = remembered(key_of(*adjustable_))) sizes = *known;
    }
    say(words("{}: {}{}", "{}：{}{}",
              request_.knobs.name.empty() ? words("batch size", "batch size") : request_.knobs.name,
              equation(request_.policy.rule, sizes, 0),
              sizes == adjustable_->sizes() ? "" : words(" (from an earlier run)", "（来自之前的运行）")));
    return sizes;
  }

  JobOutcome attempt() {
    JobRequest job = request_.job;
    Command command{job.command, {}, {}};
    if (adjustable_) {
      command = adjustable_->with(sizes_);
      job.variables["ACCEL_BATCH_SIZE"] = std::to_string(sizes_.batch);
      job.sizes = to_json(sizes_);
    }
    job.variables["ACCEL_ATTEMPT"] = std::to_string(number_);
    const Copies copies(command);
    job.command = command.words;
    if (adjustable_) {
      const std::string asked = end_at_first_failure(job.engine, job.command, job.variables);
      if (!asked.empty() && number_ == 1)
        say(words("{} is left out: it is accelrun that starts the ranks again",
                  "已忽略 {}：由 accelrun 重新启动进程", asked));
    }
    for (const auto& [name, value] : command.environment) job.variables[name] = value;
    if (number_ > 1 || resumed_) {
      std::istringstream resume(request_.resume);
      for (std::string word; resume >> word;) job.command.push_back(word);
    }
    if (number_ > 1) {
      job.settings.run_id = fmt::format("{}.{}", request_.job.settings.run_id, number_);
      job.variables["ACCEL_RUN_ID"] = job.settings.run_id;
    }
    if (output_) job.variables["ACCEL_OUTPUT_DIR"] = output_->directory();
    emit({{"event", "attempt"}, {"number", number_}, {"command", job.command}, {"sizes", to_json(sizes_)}});
    JobOutcome outcome = run_job(job, signals_);
    if (output_) output_->drain();
    return outcome;
  }

  static bool is_out_of_memory(const JobOutcome& outcome) {
    return outcome.status == ACCEL_EXIT_OUT_OF_MEMORY && !outcome.interrupted;
  }
  bool is_out_of_memory(const JobOutcome& outcome, const std::optional<std::int64_t>& kills_before) {
    if (is_out_of_memory(outcome)) return true;
    if (outcome.status != 0 && !outcome.interrupted && !outcome.fault && output_ &&
        output_->mentioned_out_of_memory() && adjustable_) {
      say(words("no allocation was seen to fail, but a rank says that it is out of memory",
                "未观察到分配失败，但有进程报告内存不足"));
      return true;
    }
    const std::optional<std::int64_t> kills = oom_kills();
    if (outcome.status == 0 || outcome.interrupted || !kills || !kills_before || *kills <= *kills_before)
      return false;
    say(
        words("the kernel's OOM killer has killed {} process(es) of this job: host memory, not a GPU's, has "
              "run out. A "
              "smaller batch may not help; fewer data-loader workers may.",
              "内核 OOM killer 终止了本作业的 {} 个进程：是主机内存不足，不是显存。减小 batch 不一定有用，"
              "减少数据加载进程可能有用。",
              *kills - *kills_before));
    emit({{"event", "host_oom"}, {"killed", *kills - *kills_before}});
    return request_.retry_host_oom && adjustable_;
  }

  void note(const Watch::Fault& fault) {
    last_ = Shortage::of(fault);
    if (!first_) first_ = last_;
    Attempt attempt;
    attempt.sizes = sizes_;
    const MemoryEpisode& memory = last_->memory;
    attempt.needed = memory.bytes != 0 ? memory.own + static_cast<std::int64_t>(memory.bytes) : 0;
    attempt.total = memory.own + static_cast<std::int64_t>(memory.free);
    attempts_.push_back(attempt);
    emit({{"event", "out_of_memory"},
          {"number", number_},
          {"rank", last_->rank},
          {"device", memory.device},
          {"asked", memory.bytes},
          {"free", memory.free},
          {"total", memory.total},
          {"own", memory.own}});
  }

  std::optional<Sizes> next_attempt() {
    if (attempts_.empty() || attempts_.back().sizes != sizes_) attempts_.push_back({sizes_, 0, 0, false});
    std::vector<Attempt> known = attempts_;
    if (request_.policy.reduction.kind == Reduction::Kind::Bisect) {
      if (const auto ran = remembered(key_of(*adjustable_))) known.insert(known.begin(), {*ran, 0, 0, true});
    }
    std::optional<Sizes> next = sizes_;
    if (request_.shrink_training) next = next_sizes(request_.policy, known);
    if (request_.shrink_evaluation) {
      const std::int64_t half = sizes_.evaluation / 2;
      if (half < 1 && !request_.shrink_training) return std::nullopt;
      if (next) next->evaluation = std::max<std::int64_t>(half, 1);
    }
    return next != sizes_ ? next : std::nullopt;
  }

  int finish(const JobOutcome& outcome) {
    const bool changed = adjustable_ && sizes_ != adjustable_->sizes();
    if (outcome.status == 0 && (number_ > 1 || changed)) {
      say(words("ran with {} (attempt {})", "运行成功：{}（第 {} 次尝试）",
                equation(request_.policy.rule, sizes_, ranks()), number_));
    }
    if (outcome.status != 0 && adjustable_ && !outcome.fault && !outcome.interrupted && !output_)
      say(
          words("no allocation was seen to fail; if the ranks say that memory has run out, --tag-output "
                "lets accelrun read it and try again",
                "未观察到分配失败；如果进程自己报告内存不足，使用 --tag-output 可让 accelrun 读取并重试"));
    if (outcome.status == 0 && request_.remember && adjustable_ && !remember(key_of(*adjustable_), sizes_))
      say(words("the size could not be remembered", "无法保存这个 batch size"));
    if (outcome.status == 0 && request_.on_oom == OnOom::Requeue) unlink(request_.state_file.c_str());
    emit({{"event", "end"}, {"number", number_}, {"status", outcome.status}, {"sizes", to_json(sizes_)}});
    return outcome.status;
  }

  /// Nobody knows where the batch size stands.
  int without_knobs(const JobOutcome& outcome) {
    if (request_.guessed) {
      say(
          words("accelrun can start it again with a smaller batch, if {} is its batch size: accelrun --batch "
                "{} [--accum "
                "KNOB] ...",
                "如果 {} 是 batch size，accelrun 可以用更小的 batch 重新启动：accelrun --batch {} [--accum "
                "KNOB] ...",
                request_.knobs.batch, request_.knobs.batch));
    }
    return outcome.status;
  }

  int propose(const JobOutcome& outcome, const Sizes& next) {
    say(words("next: {}", "下一步：{}", next_command(next)));
    return outcome.status;
  }

  int give_up(const std::string& why) {
    std::string text = "[accel] " + why + "\n";
    if (first_) {
      text += words("[accel]   first: {}: {}\n", "[accel]   首次：{}：{}\n",
                    equation(request_.policy.rule, attempts_.front().sizes, 0), first_->text());
      text += words("[accel]   last:  {}: {}\n", "[accel]   末次：{}：{}\n",
                    equation(request_.policy.rule, attempts_.back().sizes, 0), last_->text());
      const MemoryEpisode& first = first_->memory;
      const MemoryEpisode& last = last_->memory;
      if (last.impossible != 0) {
        text += words(
            "[accel]   a smaller batch does not help: at the smallest the request is still larger than the "
            "whole GPU\n",
            "[accel]   减小 batch 没有用：最小时申请的显存仍然超过整个 GPU\n");
      } else if (attempts_.size() > 1 && first.bytes == last.bytes && first.own == last.own) {
        text += words(
            "[accel]   a smaller batch does not help: the request that failed is the same at every size "
            "(weights, optimizer or a cache of fixed size)\n",
            "[accel]   减小 batch 没有用：失败的申请与 batch 无关（权重、优化器或固定大小的缓存）\n");
      }
    }
    log().print(text);
    emit({{"event", "gave_up"}, {"number", number_}, {"reason", why}});
    return ACCEL_EXIT_OUT_OF_MEMORY;
  }

  int requeue(const Sizes& next) {
    Json state = to_json(next);
    state["version"] = 1;
    state["command"] = quoted(request_.job.command);
    std::ofstream stream(request_.state_file);
    stream << state.dump(2) << '\n';
    if (!stream.flush()) {
      say(words("{} cannot be written, so the smaller batch would be lost",
                "无法写入 {}，较小的 batch 会丢失", request_.state_file));
      return ACCEL_EXIT_OUT_OF_MEMORY;
    }
    say(words("{}; recorded in {}, to be started again (exit status {})",
              "{}；已记录在 {}，请重新启动（退出码 {}）", change(next), request_.state_file,
              static_cast<int>(ACCEL_EXIT_REQUEUE)));
    return ACCEL_EXIT_REQUEUE;
  }

  int ranks() const { return last_ ? last_->ranks : 0; }

  std::string change(const Sizes& next) const {
    const Rule rule = request_.policy.rule;
    const auto before = examples_a_step(rule, sizes_);
    const auto after = examples_a_step(rule, next);
    std::string text = fmt::format("{} → {}", equation(rule, sizes_, ranks()), equation(rule, next, ranks()));
    if (next.evaluation != sizes_.evaluation)
      text += words("; evaluation batch {} → {}", "；评估 batch {} → {}", sizes_.evaluation, next.evaluation);
    if (before && after && *before != *after) {
      // Without accumulation nobody says whether the number is a rank's or all ranks'.
      const int all = rule == Rule::GlobalOnly ? 1 : std::max(ranks(), 1);
      text += words("; effective batch {} → {}", "；有效 batch {} → {}", *before * all, *after * all);
      if (!request_.knobs.learning_rate.empty())
        text += words(": consider the learning rate ({})", "：请考虑调整学习率（{}）",
                      request_.knobs.learning_rate);
    }
    if (rule == Rule::BuiltIn)
      text += words("; what is built serves smaller batches", "；构建出的引擎只支持更小的 batch");
    return text;
  }

  std::string next_command(const Sizes& next) const {
    const Command command = adjustable_->with(next);
    std::string text;
    for (const auto& [name, value] : command.environment) text += fmt::format("{}={} ", name, value);
    text += quoted(command.words);
    if (!request_.resume.empty()) text += " " + request_.resume;
    return text;
  }

  void announce(const Sizes& next, double memory_back) {
    std::string text =
        words("[accel] attempt {} ran out of memory: {}\n", "[accel] 第 {} 次尝试显存不足：{}\n", number_,
              last_ ? last_->text() : words("host memory", "主机内存"));
    text += "[accel]   " + change(next) + "\n";
    text += words("[accel]   memory back after {:.1f} s; next: {}\n",
                  "[accel]   {:.1f} 秒后显存已释放；下一步：{}\n", memory_back, next_command(next));
    for (const auto& [file, copy] : adjustable_->with(next).copies)
      text += words("[accel]   with a copy of {} that says so\n", "[accel]   使用修改过的 {} 副本\n", file);
    if (request_.resume.empty() && !request_.knobs.resume.empty()) {
      text += words("[accel]   it starts from the beginning; to go on from a checkpoint: --resume '{}'\n",
                    "[accel]   将从头开始；要从检查点继续：--resume '{}'\n", request_.knobs.resume);
    }
    log().print(text);
    emit({{"event", "retry"},
          {"after", number_},
          {"sizes", to_json(next)},
          {"memory_back_seconds", memory_back}});
  }

  void emit(Json event) const {
    if (!request_.json) return;
    event["accelrun"] = 1;
    const std::string line = event.dump() + "\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  }

  static void say(const std::string& line) { log().print("[accel] " + line + "\n"); }

  const RetryRequest& request_;
  const Signals signals_;
  std::optional<Adjustable> adjustable_;
  Sizes sizes_;
  int number_ = 0;
  bool resumed_ = false;
  std::vector<Attempt> attempts_;
  std::optional<Shortage> first_, last_;
  std::optional<RankOutput> output_;
};

}  // namespace

int run_with_retries(const RetryRequest& request) {
  log().configure(request.job.settings, request.job.settings.run_id, -1);
  return Retries(request).run();
}

std::string explain(const RetryRequest& request) {
  const Command original{request.job.command, {}, {}};
  std::string text = words("command: {}\n", "命令：{}\n", quoted(original.words));
  if (request.knobs.batch.empty()) {
    return text + words("batch size: not known; --batch says where it stands (accelrun --help)\n",
                        "batch size：未知；请用 --batch 指明位置（accelrun --help）\n");
  }
  if (request.guessed) {
    return text + words("batch size: perhaps {}; --batch {} makes it so\n",
                        "batch size：可能是 {}；用 --batch {} 确认\n", request.knobs.batch,
                        request.knobs.batch);
  }
  const Adjustable adjustable(original, request.knobs);
  if (!request.knobs.name.empty()) text += words("program: {}\n", "程序：{}\n", request.knobs.name);
  text += words("rule: {}\n", "规则：{}\n", name_of(request.policy.rule));
  const auto line = [&](const char* what, const std::string& carrier, std::int64_t value) {
    if (!carrier.empty() && value != 0) text += fmt::format("{}: {} = {}\n", what, carrier, value);
  };
  line("batch", request.knobs.batch, adjustable.sizes().batch);
  line("accumulation", request.knobs.accumulation, adjustable.sizes().accumulation);
  line("global batch", request.knobs.global, adjustable.sizes().global);
  line("evaluation batch", request.knobs.evaluation, adjustable.sizes().evaluation);
  std::vector<Attempt> attempts{{adjustable.sizes(), 0, 0, false}};
  constexpr std::size_t kShown = 8;
  for (std::size_t number = 1; number <= kShown; ++number) {
    const Command command = adjustable.with(attempts.back().sizes);
    text += words("attempt {}: {}\n  {}", "第 {} 次：{}\n  {}", number,
                  equation(request.policy.rule, attempts.back().sizes, 0), quoted(command.words));
    if (number > 1 && !request.resume.empty()) text += " " + request.resume;
    for (const auto& [name, value] : command.environment) text += fmt::format("\n  {}={}", name, value);
    for (const auto& [file, copy] : command.copies)
      text += words("\n  with a changed copy of {}", "\n  使用 {} 的修改副本", file);
    text += "\n";
    const auto next = next_sizes(request.policy, attempts);
    if (!next) break;
    attempts.push_back({*next, 0, 0, false});
  }
  return text;
}

}  // namespace accel
