#include "launcher/options.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "launcher/command_line.h"
#include "launcher/failure.h"
#include "settings/settings.h"

namespace accel {
namespace {

constexpr const char* kExamples = R"(
Examples:
  accelrun mpirun -n 8 ./solver input.nml
  accelrun --check sync --timeout 120 mpiexec -n 4 python3 train.py
  accelrun --batch arg:--batch-size --accum arg:--accum torchrun train.py --batch-size 64 --accum 1

Exit status: 80 mismatch, 81 deadlock or time-out, 82 early exit, 83 out of memory, 84 start me again,
85 crash; else the command's own. --help-all lists all options.
)";

/// "ACCEL_WARN_AFTER" -> "--warn-after"
std::string option_name(const std::string& variable) {
  std::string name = "--";
  for (const char c : variable.substr(std::string("ACCEL_").size())) {
    name += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string own_directory() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return self.substr(0, self.rfind('/'));
}

std::string find_library(const std::string& asked) {
  if (!asked.empty()) {
    if (access(asked.c_str(), R_OK) == 0) return asked;
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("--library {}: no such file", asked));
  }
  for (const char* place : {"/libaccel.so", "/../lib/libaccel.so"}) {
    if (access((own_directory() + place).c_str(), R_OK) == 0) return own_directory() + place;
  }
  throw Failure(ACCEL_EXIT_INTERNAL,
                "libaccel.so is neither beside accelrun nor in ../lib; --library PATH names it");
}

/// What leads libraries loaded with RTLD_DEEPBIND to `library`.
std::string auditor_of(const std::string& library) {
  if (gnu_get_libc_version() < std::string("2.35")) {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("--audit needs glibc 2.35 or newer, this is {}: older ones crash "
                              "or slow down under LD_AUDIT",
                              gnu_get_libc_version()));
  }
  std::string auditor = library.substr(0, library.rfind('/') + 1) + "libaccel-audit.so";
  if (access(auditor.c_str(), R_OK) == 0) return auditor;
  throw Failure(ACCEL_EXIT_INTERNAL, fmt::format("{}: no such file, but --audit needs it", auditor));
}

/// The user's words after our own options.
std::vector<std::string> command_of(const CLI::App& app) {
  std::vector<std::string> words = app.remaining();
  if (!words.empty() && words.front() == "--") {
    words.erase(words.begin());
  } else if (!words.empty() && words.front().size() > 1 && words.front().front() == '-') {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("unknown option {}; accelrun --help lists them", words.front()));
  }
  if (words.empty()) throw Failure(ACCEL_EXIT_USAGE, "no command given; try: accelrun mpirun -n 4 ./program");
  return words;
}

/// Options as the user gave them, by name.
struct Options {
  std::map<std::string, std::string> variables;
  bool audit = false;
  std::string library;
  std::string engine = "auto";
  bool keep = false;
  std::string manifest;
  bool tag_output = false;
  std::string output_directory;
  std::string batch, accumulation, global, evaluation, preset, rule;
  std::string reduce = "half";
  std::string keep_effective = "prefer";
  std::string on_oom = "retry";
  std::string scope = "train";
  std::string resume;
  std::string state = "accelrun.state.json";
  std::int64_t min_batch = 1;
  int max_attempts = 0;
  bool explain = false;
  bool host_oom = false;
  bool remember = false;
  bool reuse = false;
  bool json = false;
};

void add_options(CLI::App& app, Options& options, bool everything) {
  for (const Variable& variable : variables()) {
    const std::string name = variable.name;
    if (name == "ACCEL_DISABLE") continue;
    app.add_option(option_name(name), options.variables[name],
                   fmt::format("{} ({})", variable.meaning, variable.accepted))
        ->type_name("VALUE")
        ->group(everything || variable.often ? "Options" : "");
  }
  app.add_flag("--keep", options.keep, "keep the run directory and say where it is");
  app.add_option("--manifest", options.manifest, "write what the run was into this file, for accelrun diff")
      ->type_name("FILE")
      ->group(everything ? "Options" : "");
  app.add_flag("--tag-output", options.tag_output, "put [rank N] before each line of the ranks' output");
  app.add_option("--output-dir", options.output_directory, "each rank's output into files of this directory")
      ->type_name("DIR")
      ->group(everything ? "Options" : "");
  app.add_flag("--audit", options.audit,
               "also see what is loaded with RTLD_DEEPBIND (LD_AUDIT; needs glibc 2.35)");
  app.add_option("--engine", options.engine,
                 "who starts the ranks (auto, plain, torchrun, horovod, srun, deepspeed, openmpi or hydra)")
      ->type_name("VALUE");
  app.add_option("--library", options.library, "libaccel.so to preload (default: the one beside accelrun)")
      ->type_name("VALUE")
      ->group(everything ? "Options" : "");
  const std::string oom = "Out of memory: again with a smaller batch";
  const std::string more = everything ? oom : "";
  const auto option = [&](const char* name, auto& target, const char* meaning, const std::string& group) {
    app.add_option(name, target, meaning)->type_name("VALUE")->group(group);
  };
  option("--batch", options.batch,
         "where the batch size a rank stands: arg:--flag, arg:key=, pos:N, env:NAME, "
         "yaml:|json:|toml:FILE#key, or a "
         "number, which stands for {batch} in the command",
         oom);
  option("--accum", options.accumulation, "where the number of accumulated batches stands, likewise", oom);
  option("--global", options.global, "where the global batch size stands, likewise", oom);
  app.add_flag("--explain", options.explain, "say what was recognised and the next commands; run nothing")
      ->group(oom);
  option("--eval-batch", options.evaluation, "where the evaluation's batch size stands, likewise", more);
  option("--oom-scope", options.scope, "which to reduce (train, eval or both)", more);
  option("--preset", options.preset, "the program, as the table of known ones calls it", more);
  option("--rule", options.rule,
         "how the sizes hang together (micro-accum, micro-global, divided, global-only, tokens, "
         "self-keeping, built-in)",
         more);
  option("--reduce", options.reduce, "by how much (half, a factor such as 0.9, pow2:2, bisect or fit)", more);
  option("--keep-effective", options.keep_effective,
         "batch x accumulation as before (prefer, require or off)", more);
  option("--min-batch", options.min_batch, "no smaller than this", more);
  option("--max-attempts", options.max_attempts, "no more than this (0: as many as it takes)", more);
  option("--resume", options.resume, "words added to the command from the second attempt on", more);
  option("--on-oom", options.on_oom,
         "what follows (retry; requeue: record the smaller batch and exit 84; report: only say it)", more);
  option("--state", options.state, "the file that requeue records it in", more);
  app.add_flag("--retry-host-oom", options.host_oom, "also after the kernel's OOM killer")->group(more);
  app.add_flag("--remember", options.remember, "remember the size that ran")->group(more);
  app.add_flag("--reuse", options.reuse, "begin with the size that was remembered")->group(more);
  app.add_flag("--json", options.json, "events for programs on stderr, a line each")->group(more);
}

/// The value of an option that takes one of some words.
template <class Value>
Value choice(const char* option, const std::string& given,
             std::initializer_list<std::pair<const char*, Value>> all) {
  std::string accepted;
  for (const auto& [word, value] : all) {
    if (given == word) return value;
    accepted += (accepted.empty() ? "" : ", ") + std::string(word);
  }
  if (const auto comma = accepted.rfind(", "); comma != std::string::npos) accepted.replace(comma, 2, " or ");
  throw Failure(ACCEL_EXIT_USAGE, fmt::format("{} {} is not valid: expected {}", option, given, accepted));
}

JobRequest job_of(const CLI::App& app, const Options& options) {
  for (const Variable& variable : variables()) {
    const std::string option = option_name(variable.name);
    const auto value = options.variables.find(variable.name);
    if (value == options.variables.end() || app.get_option(option)->count() == 0) continue;
    if (!accepts(variable.name, value->second)) {
      throw Failure(ACCEL_EXIT_USAGE,
                    fmt::format("{} {} is not valid: expected {}", option, value->second, variable.accepted));
    }
    setenv(variable.name, value->second.c_str(), 1);
  }
  JobRequest request;
  request.keep = options.keep;
  request.manifest = options.manifest;
  request.command = command_of(app);
  request.command[0] = find_program(request.command[0]);
  request.engine = options.engine == "auto" ? detect_engine(request.command)
                                            : choice<Engine>("--engine", options.engine,
                                                             {{"auto", Engine::Plain},
                                                              {"plain", Engine::Plain},
                                                              {"torchrun", Engine::Torchrun},
                                                              {"horovod", Engine::Horovod},
                                                              {"srun", Engine::Srun},
                                                              {"deepspeed", Engine::DeepSpeed},
                                                              {"openmpi", Engine::OpenMpi},
                                                              {"hydra", Engine::Hydra}});
  std::vector<std::string> complaints;
  request.settings = Settings::from_environment(complaints);
  for (const std::string& complaint : complaints) std::cerr << "accelrun: " << complaint << "\n";
  if (request.settings.run_id.empty()) request.settings.run_id = new_run_id();
  request.several_hosts = may_span_hosts(request.engine, request.command);
  // The other hosts need not have this one's session directory.
  if (request.several_hosts && std::getenv("ACCEL_RUN_DIR") == nullptr && access("/dev/shm", W_OK) == 0)
    request.settings.run_base = "/dev/shm";
  setenv("ACCEL_RUN_ID", request.settings.run_id.c_str(), 1);
  setenv("ACCEL_RUN_DIR", request.settings.run_base.c_str(), 1);
  for (const Variable& variable : variables()) {
    const char* value = std::getenv(variable.name);
    if (value != nullptr && value[0] != '\0') request.variables[variable.name] = value;
  }
  const auto put_first = [&](const char* name, const std::string& path) {
    const char* others = std::getenv(name);
    request.variables[name] =
        path + (others != nullptr && others[0] != '\0' ? ":" + std::string(others) : "");
  };
  const std::string preloaded = find_library(options.library);
  put_first("LD_PRELOAD", preloaded);
  if (options.audit) put_first("LD_AUDIT", auditor_of(preloaded));
  return request;
}

/// Where the sizes stand: as the user says, else as the table knows, else a guess.
void find_knobs(const Options& options, RetryRequest& request) {
  const Command command{request.job.command, {}, {}};
  Knobs& knobs = request.knobs;
  if (!options.preset.empty()) {
    const auto known = trainer_named(options.preset);
    if (!known) {
      throw Failure(ACCEL_EXIT_USAGE, fmt::format("--preset {} is not in the table: it has {}",
                                                  options.preset, fmt::join(trainer_names(), ", ")));
    }
    knobs = *known;
  } else if (options.batch.empty()) {
    knobs = recognise(command).value_or(Knobs{});
  }
  if (!options.batch.empty()) knobs.batch = options.batch;
  if (!options.accumulation.empty()) knobs.accumulation = options.accumulation;
  if (!options.global.empty()) knobs.global = options.global;
  if (!options.evaluation.empty()) knobs.evaluation = options.evaluation;
  if (knobs.batch.empty() && (!knobs.accumulation.empty() || !knobs.global.empty()))
    throw Failure(ACCEL_EXIT_USAGE, "--accum and --global need --batch: where the batch size stands");
  if (knobs.name.empty() && !options.batch.empty())
    knobs.rule = !knobs.global.empty()        ? Rule::MicroAndGlobal
                 : knobs.accumulation.empty() ? Rule::GlobalOnly
                                              : Rule::MicroAndAccumulation;
  if (!options.rule.empty()) {
    knobs.rule = choice<Rule>("--rule", options.rule,
                              {{"micro-accum", Rule::MicroAndAccumulation},
                               {"micro-global", Rule::MicroAndGlobal},
                               {"divided", Rule::Divided},
                               {"global-only", Rule::GlobalOnly},
                               {"tokens", Rule::Tokens},
                               {"self-keeping", Rule::SelfKeeping},
                               {"built-in", Rule::BuiltIn}});
  }
  if (knobs.batch.empty()) {
    const std::vector<std::string> found = guesses(command);
    request.guessed = !found.empty();
    if (request.guessed) knobs.batch = found.front();
  }
  request.policy.rule = knobs.rule;
}

RetryRequest retries_of(const CLI::App& app, const Options& options) {
  RetryRequest request;
  request.job = job_of(app, options);
  find_knobs(options, request);
  const auto reduction = Reduction::parse(options.reduce);
  if (!reduction) {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("--reduce {} is not valid: expected half, a factor between 0 and 1, "
                              "pow2:N, bisect or fit",
                              options.reduce));
  }
  request.policy.reduction = *reduction;
  request.policy.keep =
      choice<Keep>("--keep-effective", options.keep_effective,
                   {{"prefer", Keep::Prefer}, {"require", Keep::Require}, {"off", Keep::Off}});
  request.policy.min_batch = options.min_batch;
  request.max_attempts = options.max_attempts;
  request.shrink_training =
      choice<bool>("--oom-scope", options.scope, {{"train", true}, {"eval", false}, {"both", true}});
  request.shrink_evaluation = options.scope != "train";
  if (request.shrink_evaluation && request.knobs.evaluation.empty())
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("--oom-scope {} needs --eval-batch: where the evaluation's batch size stands",
                              options.scope));
  request.resume = options.resume;
  request.on_oom =
      choice<OnOom>("--on-oom", options.on_oom,
                    {{"retry", OnOom::Retry}, {"requeue", OnOom::Requeue}, {"report", OnOom::Report}});
  request.state_file = options.state;
  request.retry_host_oom = options.host_oom;
  request.remember = options.remember;
  request.reuse = options.reuse;
  request.json = options.json;
  request.output = {options.output_directory, options.tag_output};
  return request;
}

/// Where an option's value comes from.
struct Source {
  std::string value;
  std::string from;
};

/// "--timeout". CLI11 tells no name of an option that its help does not list.
std::string long_name(const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  return names.empty() ? std::string() : "--" + names.front();
}

/// A key of a configuration file as words of the command line would say it.
std::string text_of(const toml::node& node, const std::string& where) {
  if (const auto text = node.value<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto number = node.value_exact<std::int64_t>()) return std::to_string(*number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  throw Failure(ACCEL_EXIT_USAGE, fmt::format("{} is neither a text nor a number", where));
}

/// Fills what the command line leaves open: from ACCEL_*, then ./accelrun.toml, then the user's file.
std::map<std::string, Source> complete(CLI::App& app) {
  std::map<std::string, Source> sources;
  const auto take = [&](CLI::Option* option, const std::string& value, const std::string& from) {
    const std::string name = long_name(*option);
    sources[name] = {value, from};
    try {
      option->add_result(value);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      throw Failure(ACCEL_EXIT_USAGE, fmt::format("{}: {}", from, error.what()));
    }
  };
  const std::vector<CLI::Option*> options = app.get_options([](const CLI::Option* option) {
    const std::string name = long_name(*option);
    return name.starts_with("--") && name != "--help" && name != "--help-all" && name != "--version" &&
           name != "--print-config";
  });
  for (CLI::Option* option : options) {
    if (option->count() != 0)
      sources[long_name(*option)] = {fmt::format("{}", fmt::join(option->results(), " ")), "command line"};
  }
  for (CLI::Option* option : options) {
    std::string variable = "ACCEL_";
    for (const char c : long_name(*option).substr(2))
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    const char* value = std::getenv(variable.c_str());
    if (option->count() != 0 || value == nullptr || *value == '\0') continue;
    // The library's own variables are read where they are; they only come before the files here.
    if (std::any_of(variables().begin(), variables().end(),
                    [&](const Variable& one) { return variable == one.name; })) {
      sources[long_name(*option)] = {value, variable};
    } else {
      take(option, value, variable);
    }
  }
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path user =
      config != nullptr && *config != '\0'
          ? std::filesystem::path(config)
          : std::filesystem::path(home != nullptr ? home : "/nonexistent") / ".config";
  for (const std::string& file :
       {std::string("accelrun.toml"), (user / "accelrun" / "config.toml").string()}) {
    if (access(file.c_str(), R_OK) != 0) continue;
    toml::table table;
    try {
      table = toml::parse_file(file);
    } catch (const toml::parse_error& error) {
      throw Failure(ACCEL_EXIT_USAGE,
                    fmt::format("{}, line {}: {}", file, error.source().begin.line, error.description()));
    }
    for (const auto& [key, node] : table) {
      const std::string name = "--" + std::string(key.str());
      const auto option = std::find_if(options.begin(), options.end(),
                                       [&](CLI::Option* one) { return long_name(*one) == name; });
      if (option == options.end())
        throw Failure(ACCEL_EXIT_USAGE, fmt::format("{}, line {}: {} is no option of accelrun", file,
                                                    node.source().begin.line, key.str()));
      if (!sources.contains(name)) take(*option, text_of(node, fmt::format("{}: {}", file, key.str())), file);
    }
  }
  return sources;
}

std::string print(const CLI::App& app, const std::map<std::string, Source>& sources) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = long_name(*option);
    if (!name.starts_with("--") || name == "--help" || name == "--help-all" || name == "--version" ||
        name == "--print-config")
      continue;
    const auto source = sources.find(name);
    text += source != sources.end()
                ? fmt::format("{} = {}  ({})\n", name.substr(2), source->second.value, source->second.from)
                : fmt::format("{}  (default)\n", name.substr(2));
  }
  return text;
}

}  // namespace

std::optional<Asked> parse_command_line(int argc, char** argv, int& status) {
  const bool everything = std::find(argv, argv + argc, std::string("--help-all")) != argv + argc;
  CLI::App app(
      "Run a distributed job so that mismatches, deadlocks, lost ranks and out-of-memory become errors.",
      "accelrun");
  app.set_version_flag("--version", std::string("accelrun ") + ACCEL_VERSION);
  app.set_help_all_flag("--help-all", "all options");
  app.footer(kExamples);
  app.prefix_command();
  Options options;
  add_options(app, options, everything);
  bool print_config = false;
  app.add_flag("--print-config", print_config, "say where each option comes from; run nothing")
      ->group(everything ? "Options" : "");
  status = 0;
  if (!parse(app, argc, argv, status)) return std::nullopt;
  const auto sources = complete(app);
  if (print_config) {
    std::cout << print(app, sources);
    return std::nullopt;
  }
  return Asked{retries_of(app, options), options.explain};
}

}  // namespace accel
