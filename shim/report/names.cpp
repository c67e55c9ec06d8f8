#include "report/names.h"

#include <cctype>
#include <cstddef>
#include <string_view>

namespace accel {
namespace {

constexpr std::size_t kLongArguments = 32;
constexpr std::size_t kLongParameters = 60;

bool full_names = false;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// `operator<`, `operator->`, `operator()` and their like: what follows the word belongs to the name.
std::size_t end_of_operator(const std::string& text, std::size_t at) {
  constexpr std::string_view kOperator = "operator";
  if (text.compare(at, kOperator.size(), kOperator) != 0) return at;
  const bool inside_word =
      at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0 || text[at - 1] == '_');
  if (inside_word) return at;
  std::size_t end = at + kOperator.size();
  if (text.compare(end, 2, "()") == 0 || text.compare(end, 2, "[]") == 0) return end + 2;
  while (end < text.size() && std::string_view("<>=-!&|+*/%^~,").find(text[end]) != std::string_view::npos)
    ++end;
  return end;
}

/// Behind the bracket that closes the one at `open`.
std::size_t behind(const std::string& text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (const std::size_t end = end_of_operator(text, at); end > at) {
      at = end - 1;
      continue;
    }
    const char c = text[at];
    if (c == '-' && at + 1 < text.size() && text[at + 1] == '>') {
      ++at;
      continue;
    }
    if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
    if (c == '>' || c == ')' || c == '}' || c == ']') --depth;
    if (depth == 0) return at + 1;
  }
  return text.size();
}

}  // namespace

void show_full_names(bool full) { full_names = full; }

std::string short_name(const std::string& demangled) {
  if (full_names) return demangled;
  std::string text = demangled;
  replace_all(text, "std::__cxx11::", "std::");
  replace_all(text, "std::__1::", "std::");
  replace_all(text, "std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string");
  replace_all(text, "(anonymous namespace)", "{anonymous}");
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t end = end_of_operator(text, at); end > at) {
      result.append(text, at, end - at);
      at = end;
      continue;
    }
    const char c = text[at];
    if (c == '<' || c == '(') {
      const std::size_t end = behind(text, at);
      const bool is_long = end - at > (c == '<' ? kLongArguments : kLongParameters);
      if (is_long) {
        result += c == '<' ? "<...>" : "(...)";
        at = end;
        continue;
      }
    }
    result += c;
    ++at;
  }
  replace_all(result, "{anonymous}", "(anonymous namespace)");
  return result;
}

}  // namespace accel
