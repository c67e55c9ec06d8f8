#include "launcher/batch/memory_of_sizes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/gpus.h"
#include "launcher/recorded_run.h"
#include "signature/hash.h"

namespace accel {
namespace {

std::filesystem::path cache_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base =
      cache != nullptr && *cache != '\0'
          ? std::filesystem::path(cache)
          : std::filesystem::path(home != nullptr ? home : "/nonexistent") / ".cache";
  return base / "accelrun" / "sizes.json";
}

nlohmann::json read_all() { return read_json(cache_file().string()); }

}  // namespace

nlohmann::json to_json(const Sizes& sizes) {
  return {{"batch", sizes.batch},
          {"accumulation", sizes.accumulation},
          {"global", sizes.global},
          {"evaluation", sizes.evaluation}};
}

Sizes sizes_from(const nlohmann::json& json, const Sizes& otherwise) {
  Sizes sizes;
  sizes.batch = json.value("batch", otherwise.batch);
  sizes.accumulation = json.value("accumulation", otherwise.accumulation);
  sizes.global = json.value("global", otherwise.global);
  sizes.evaluation = json.value("evaluation", otherwise.evaluation);
  return sizes;
}

std::string key_of(const Adjustable& adjustable) {
  // The same sizes in every carrier: what is left is the command without them.
  Sizes none = adjustable.sizes();
  for (std::int64_t* size : {&none.batch, &none.accumulation, &none.global, &none.evaluation}) {
    if (*size != 0) *size = 987654321;
  }
  const Command bare = adjustable.with(none);
  std::uint64_t hash = 0;
  for (const std::string& word : bare.words) hash = mix_text(mix(hash, 1), word.c_str());
  for (const auto& [file, text] : bare.copies)
    hash = mix_text(mix_text(mix(hash, 2), file.c_str()), text.c_str());
  if (const auto gpus = look_at_gpus()) {
    for (const Gpu& gpu : gpus->all) hash = mix(mix_text(mix(hash, 3), gpu.name.c_str()), gpu.total);
  }
  return fmt::format("{:016x}", hash);
}

std::optional<Sizes> remembered(const std::string& key) {
  const auto all = read_all();
  if (!all.contains(key) || !all[key].is_object()) return std::nullopt;
  const Sizes sizes = sizes_from(all[key], {});
  return sizes.batch > 0 && sizes.accumulation > 0 ? std::optional(sizes) : std::nullopt;
}

bool remember(const std::string& key, const Sizes& sizes) {
  std::error_code error;
  const std::filesystem::path file = cache_file();
  std::filesystem::create_directories(file.parent_path(), error);
  auto all = read_all();
  all[key] = to_json(sizes);
  const std::filesystem::path fresh = file.string() + fmt::format(".{}", getpid());
  std::ofstream(fresh) << all.dump(2) << '\n';
  std::filesystem::rename(fresh, file, error);
  return !error;
}

}  // namespace accel
