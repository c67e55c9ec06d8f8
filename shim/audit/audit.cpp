// libaccel-audit.so, for LD_AUDIT: leads what was loaded with RTLD_DEEPBIND to libaccel.so.
//
// Such a library looks for a symbol among its own dependencies first, so that a preloaded one is never asked.
// The loader tells its auditor of every binding, and takes another address. We are loaded into a namespace of
// our own, before everything else, and share nothing with libaccel.so but what its symbol table says.
//
// glibc calls these functions with its own lock held; they allocate nothing. Source: rtld-audit(7).
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace {

/// libaccel.so in the program's namespace; nullptr until it is loaded.
const link_map* ours = nullptr;

struct SymbolTable {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const std::uint32_t* hash = nullptr;  ///< DT_GNU_HASH
} table;

void read_table(const link_map& map) {
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto address = entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) table.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (entry->d_tag == DT_STRTAB) table.names = reinterpret_cast<const char*>(address);
    if (entry->d_tag == DT_GNU_HASH) table.hash = reinterpret_cast<const std::uint32_t*>(address);
  }
}

/// The address of one of libaccel's exports; 0: it has none of that name.
std::uintptr_t find_export(const char* name) {
  if (table.symbols == nullptr || table.names == nullptr || table.hash == nullptr) return 0;
  const std::uint32_t buckets = table.hash[0];
  const std::uint32_t first = table.hash[1];
  const std::uint32_t* const bucket = table.hash + 4 + table.hash[2] * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* const chain = bucket + buckets;
  std::uint32_t wanted = 5381;
  for (const char* c = name; *c != '\0'; ++c) wanted = wanted * 33 + static_cast<unsigned char>(*c);
  std::uint32_t index = bucket[wanted % buckets];
  if (index < first) return 0;
  for (;; ++index) {
    const std::uint32_t there = chain[index - first];
    const ElfW(Sym)& symbol = table.symbols[index];
    if ((there | 1) == (wanted | 1) && std::strcmp(table.names + symbol.st_name, name) == 0)
      return ours->l_addr + symbol.st_value;
    if ((there & 1) != 0) return 0;
  }
}

/// Whether the loader would have asked libaccel.so before `map`.
bool comes_after_us(const link_map* map) {
  for (const link_map* one = ours->l_next; one != nullptr; one = one->l_next) {
    if (one == map) return true;
  }
  return false;
}

bool is_ours(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return std::strcmp(slash != nullptr ? slash + 1 : path, "libaccel.so") == 0;
}

}  // namespace

#define AUDIT extern "C" __attribute__((visibility("default")))

AUDIT unsigned la_version(unsigned) { return LAV_CURRENT; }

AUDIT unsigned la_objopen(link_map* map, Lmid_t space, std::uintptr_t* cookie) {
  *cookie = reinterpret_cast<std::uintptr_t>(map);
  if (space != LM_ID_BASE) return 0;
  if (ours == nullptr && is_ours(map->l_name)) ours = map;
  return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

AUDIT std::uintptr_t la_symbind64(Elf64_Sym* symbol, unsigned, std::uintptr_t* from, std::uintptr_t* to,
                                  unsigned*, const char* name) {
  const auto* const caller = reinterpret_cast<const link_map*>(*from);
  const auto* const found = reinterpret_cast<const link_map*>(*to);
  if (ours == nullptr || caller == ours || found == ours || caller == found || !comes_after_us(found))
    return symbol->st_value;
  // Relocated by now: these are bindings to others.
  if (table.symbols == nullptr) read_table(*ours);
  const std::uintptr_t wrapper = find_export(name);
  return wrapper != 0 ? wrapper : symbol->st_value;
}
