// ncclCollConfig_t of NCCL 2.31 and newer: how one collective is to be run. All ranks must pass the same,
// which NCCL does not check. Source: nccl.h 2.31 and 2.32; the struct only grows.
#pragma once
#include <cstddef>
#include <cstdint>

#include "signature/hash.h"

namespace accel {

struct CollConfig {
  std::size_t size;
  unsigned magic;
  unsigned version;
  void* extensions;
  int min_ctas, max_ctas, nvls_ctas, cga_cluster_size;
  const char* algorithms;
  int force_algorithms;  ///< since 2.32
  int cta_policy;        ///< since 2.32 here
};

/// 0: none, or all defaults as far as it is compared. What only names the call (the profiler's tag) is left
/// out.
inline std::uint64_t hash_of(const CollConfig* config) {
  if (config == nullptr || config->size < offsetof(CollConfig, force_algorithms)) return 0;
  std::uint64_t hash = mix(0x636f6e66, static_cast<std::uint32_t>(config->min_ctas));
  hash = mix(hash, static_cast<std::uint32_t>(config->max_ctas));
  hash = mix(hash, static_cast<std::uint32_t>(config->nvls_ctas));
  hash = mix(hash, static_cast<std::uint32_t>(config->cga_cluster_size));
  hash = mix_text(hash, config->algorithms != nullptr ? config->algorithms : "");
  constexpr unsigned kPolicySince = 23200;
  if (config->size >= sizeof(CollConfig) && config->version >= kPolicySince) {
    hash = mix(hash, static_cast<std::uint32_t>(config->force_algorithms));
    hash = mix(hash, static_cast<std::uint32_t>(config->cta_policy));
  }
  return hash;
}

}  // namespace accel
