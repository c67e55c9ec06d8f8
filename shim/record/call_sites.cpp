#include "record/call_sites.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "record/base_name.h"

namespace accel {

Library library_at(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return Library::None;
  const std::string_view name = base_name(info.dli_fname);
  if (name.starts_with("libmpi.so") || name.starts_with("libmpich.so") || name.starts_with("mca_"))
    return Library::Mpi;
  if (name.starts_with("libnccl.so")) return Library::Nccl;
  return name.starts_with("libcuda.so") ? Library::Cuda : Library::None;
}

std::uint16_t CallSites::add(std::uint64_t index, std::uint64_t key, const void* return_address) {
  CallSite& site = file_->sites[index];
  std::uint64_t free = 0;
  if (!__atomic_compare_exchange_n(&site.key, &free, key, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    return free == key ? static_cast<std::uint16_t>(index) : 0;
  }
  if (library_at(return_address) != Library::None) {
    __atomic_store_n(&site.flags, kSiteInternal, __ATOMIC_RELEASE);
    return static_cast<std::uint16_t>(index);
  }
  if (interpreter_ != nullptr) describe(site);
  if (unwind_ == nullptr) return static_cast<std::uint16_t>(index);
  // Our own frames come first: the stack proper begins where the wrapper returns to.
  std::uint64_t pcs[kSiteDepth + 16];
  const int depth = unwind_(pcs, kSiteDepth + 16);
  std::uint64_t* end = pcs + depth;
  std::uint64_t* begin = std::find(pcs, end, reinterpret_cast<std::uint64_t>(return_address));
  if (begin == end) begin = pcs;
  site.depth = static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(end - begin, kSiteDepth));
  std::memcpy(site.pcs, begin, site.depth * sizeof *begin);
  __atomic_store_n(&site.complete, 1, __ATOMIC_RELEASE);
  return static_cast<std::uint16_t>(index);
}

void CallSites::describe(CallSite& site) {
  char text[8192];
  const std::size_t bytes = interpreter_->describe(text, sizeof text - 1);
  if (bytes == 0) return;
  text[bytes] = '\0';
  const std::uint32_t at = __atomic_fetch_add(&file_->header.site_text_bytes, bytes + 1, __ATOMIC_RELAXED);
  if (at + bytes + 1 > sizeof file_->site_text) return;  // full: it says no more, and counts on
  std::memcpy(file_->site_text + at, text, bytes + 1);
  site.text = at + 1;
}

}  // namespace accel
