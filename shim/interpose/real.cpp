#include "interpose/real.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <string>
#include <string_view>

#include "record/base_name.h"
#include "report/log.h"

namespace accel {
namespace {

/// Symbol tables of a loaded object.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const ElfW(Half) * versions = nullptr;
};

Tables tables_of(const dl_phdr_info& object) {
  Tables tables;
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      entry = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
    }
  }
  if (entry == nullptr) return tables;
  // The loader has added the load address to these, except in read-only dynamic sections (musl, vDSO).
  const auto at = [&](ElfW(Addr) address) {
    return address < object.dlpi_addr ? address + object.dlpi_addr : address;
  };
  for (; entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) address = at(entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(address);
        break;
      case DT_GNU_HASH:
        tables.gnu_hash = reinterpret_cast<const std::uint32_t*>(address);
        break;
      case DT_VERSYM:
        tables.versions = reinterpret_cast<const ElfW(Half)*>(address);
        break;
      default:
        break;
    }
  }
  return tables;
}

/// Address of the default version of `name` in an object with a GNU hash table; nullptr if it does not define
/// it.
void* symbol_in(const dl_phdr_info& object, const char* name) {
  const Tables tables = tables_of(object);
  if (tables.symbols == nullptr || tables.strings == nullptr || tables.gnu_hash == nullptr) return nullptr;
  std::uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  const std::uint32_t bucket_count = tables.gnu_hash[0];
  const std::uint32_t first_symbol = tables.gnu_hash[1];
  const std::uint32_t bloom_words = tables.gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* buckets = tables.gnu_hash + 4 + bloom_words;
  const std::uint32_t* chains = buckets + bucket_count;
  void* hidden_version = nullptr;
  std::uint32_t index = buckets[hash % bucket_count];
  if (index < first_symbol) return nullptr;
  for (;; ++index) {
    const std::uint32_t chain = chains[index - first_symbol];
    const ElfW(Sym)& symbol = tables.symbols[index];
    const bool same = (chain | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF &&
                      std::strcmp(tables.strings + symbol.st_name, name) == 0;
    if (same) {
      void* address = reinterpret_cast<void*>(object.dlpi_addr + symbol.st_value);
      const bool hidden = tables.versions != nullptr && (tables.versions[index] & 0x8000) != 0;
      if (!hidden) return address;
      hidden_version = address;
    }
    if ((chain & 1) != 0) return hidden_version;
  }
}

std::string_view name_of(const dl_phdr_info& object) {
  return base_name(object.dlpi_name != nullptr ? object.dlpi_name : "");
}

using Dlsym = void* (*)(void*, const char*);

/// libc's own; up to glibc 2.33 it is libdl's.
void* find_in_libc(const char* name) {
  struct Search {
    const char* name;
    void* found;
  } search{name, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        auto& wanted = *static_cast<Search*>(result);
        const std::string_view library = name_of(*object);
        if (!library.starts_with("libc.so") && !library.starts_with("libdl.so")) return 0;
        wanted.found = symbol_in(*object, wanted.name);
        return wanted.found != nullptr ? 1 : 0;
      },
      &search);
  return search.found;
}

}  // namespace

}  // namespace accel

/// Also what the assembly stubs in loader/dlsym.cpp jump to.
extern "C" {
__attribute__((visibility("hidden"))) void* accel_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* accel_real_dlvsym = nullptr;
}

namespace accel {

bool defines(const dl_phdr_info& object, const char* symbol) { return symbol_in(object, symbol) != nullptr; }

void find_real_dlsym() {
  if (__atomic_load_n(&accel_real_dlsym, __ATOMIC_ACQUIRE) != nullptr) return;
  __atomic_store_n(&accel_real_dlvsym, find_in_libc("dlvsym"), __ATOMIC_RELEASE);
  __atomic_store_n(&accel_real_dlsym, find_in_libc("dlsym"), __ATOMIC_RELEASE);
}

void* real_dlsym(void* handle, const char* name) {
  find_real_dlsym();
  void* function = __atomic_load_n(&accel_real_dlsym, __ATOMIC_ACQUIRE);
  return function != nullptr ? reinterpret_cast<Dlsym>(function)(handle, name) : nullptr;
}

void* mpi_library() {
  static std::atomic<void*> known{nullptr};
  if (void* library = known.load()) return library;
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        const std::string_view name = name_of(*object);
        if (!name.starts_with("libmpi.so") && !name.starts_with("libmpich.so")) return 0;
        if (symbol_in(*object, "PMPI_Init") == nullptr) return 0;
        *static_cast<std::string*>(result) = object->dlpi_name;
        return 1;
      },
      &path);
  if (path.empty()) {
    // Another name (Cray's libmpi_gnu, an executable that carries MPI and exports it): whoever defines it
    // behind us.
    Dl_info info;
    void* next = real_dlsym(RTLD_NEXT, "PMPI_Init");
    if (next == nullptr || dladdr(next, &info) == 0 || info.dli_fname == nullptr) return nullptr;
    path = info.dli_fname;
  }
  void* library = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  known.store(library);
  return library;
}

void* find_real(const char* symbol, const void*) {
  if (void* next = real_dlsym(RTLD_NEXT, symbol)) return next;
  void* library = mpi_library();
  return library != nullptr ? real_dlsym(library, symbol) : nullptr;
}

int lacks(const char* symbol) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log().say(LogLevel::Error,
              std::string(symbol) + " was called, but no MPI library in this process has it");
  }
  constexpr int kErrOther = 16;  // Open MPI's number; MPICH's 15 is in the same class of "something else"
  return kErrOther;
}

}  // namespace accel
