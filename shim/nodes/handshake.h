// Who may talk to whom: both sides prove that they know the run's token before anything else is said.
// HMAC-SHA256 (libsodium) over what both have said, with a nonce of each side, so that nothing said before
// proves anything. What follows on the connection is neither signed nor secret.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "record/result.h"

namespace accel {

/// The run's secret.
struct Token {
  std::array<unsigned char, 32> bytes{};

  static Token random();
  /// 64 hexadecimal digits.
  static std::optional<Token> parse(const std::string& text);
  std::string text() const;
};

using Nonce = std::array<unsigned char, 16>;
using Mac = std::array<unsigned char, 32>;

struct Hello {
  std::uint64_t magic;
  std::uint32_t layout;        ///< kLayoutVersion
  std::uint32_t record_bytes;  ///< sizeof(RecorderFile)
  std::uint64_t node;          ///< drawn by the node, whoever leads there
  std::int32_t leader;         ///< process id
  std::uint32_t unused;
  Nonce nonce;
  char run_id[192];  ///< up to a NUL
  char host[64];
};

struct Challenge {
  Nonce nonce;
  Mac mac;
};

struct Proof {
  Mac mac;
};

/// The leader's side of one connection.
class Introduction {
 public:
  Introduction(const Token& token, const std::string& run_id, const std::string& host, std::uint64_t node);
  const Hello& hello() const { return hello_; }
  /// Nothing: that is not the coordinator of this run.
  std::optional<Proof> answer(const Challenge& challenge) const;

 private:
  Token token_;
  Hello hello_{};
};

/// The coordinator's.
class Reception {
 public:
  Reception(const Token& token, const std::string& run_id);
  /// The error says why it is sent away.
  Result<Challenge> challenge(const Hello& hello);
  bool accepts(const Proof& proof) const;

 private:
  Token token_;
  std::string run_id_;
  Hello hello_{};
  Nonce nonce_{};
};

}  // namespace accel
