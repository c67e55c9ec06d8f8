#include "nodes/handshake.h"

#include <fmt/format.h>
#include <sodium.h>
#include <sys/random.h>
#include <unistd.h>

#include "nodes/frames.h"
#include "record/fixed_text.h"
#include "record/layout.h"

namespace accel {
namespace {

constexpr std::uint64_t kHelloMagic = 0x31434341454c4341;

template <class Bytes>
void draw(Bytes& bytes) {
  // Never blocks for longer than a machine takes to start, and is cut short by no signal at this size.
  while (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {}
}

/// `side` keeps one side's proof from being returned to it as the other's.
Mac mac_of(const Token& token, char side, const Hello& hello, const Nonce& nonce) {
  std::string text;
  put(text, side);
  put(text, hello);
  put(text, nonce);
  Mac mac;
  static_assert(sizeof(Mac) == crypto_auth_hmacsha256_BYTES &&
                sizeof(Token) == crypto_auth_hmacsha256_KEYBYTES);
  crypto_auth_hmacsha256(mac.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                         token.bytes.data());
  return mac;
}
constexpr char kCoordinatorSide = 'C';
constexpr char kLeaderSide = 'L';

bool same(const Mac& a, const Mac& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

Token Token::random() {
  Token token;
  draw(token.bytes);
  return token;
}

std::optional<Token> Token::parse(const std::string& text) {
  Token token;
  std::size_t bytes = 0;
  const char* end = nullptr;
  const int failed =
      sodium_hex2bin(token.bytes.data(), token.bytes.size(), text.data(), text.size(), nullptr, &bytes, &end);
  if (failed != 0 || bytes != token.bytes.size() || end != text.data() + text.size()) return std::nullopt;
  return token;
}

std::string Token::text() const { return fmt::format("{:02x}", fmt::join(bytes, "")); }

Introduction::Introduction(const Token& token, const std::string& run_id, const std::string& host,
                           std::uint64_t node)
    : token_(token) {
  hello_.magic = kHelloMagic;
  hello_.layout = kLayoutVersion;
  hello_.record_bytes = sizeof(RecorderFile);
  hello_.node = node;
  hello_.leader = getpid();
  draw(hello_.nonce);
  set_text(hello_.run_id, run_id);
  set_text(hello_.host, host);
}

std::optional<Proof> Introduction::answer(const Challenge& challenge) const {
  if (!same(challenge.mac, mac_of(token_, kCoordinatorSide, hello_, challenge.nonce))) return std::nullopt;
  return Proof{mac_of(token_, kLeaderSide, hello_, challenge.nonce)};
}

Reception::Reception(const Token& token, const std::string& run_id) : token_(token), run_id_(run_id) {
  draw(nonce_);
}

Result<Challenge> Reception::challenge(const Hello& hello) {
  using Failure = Result<Challenge>;
  if (hello.magic != kHelloMagic) return Failure::failure("it is no libaccel");
  if (hello.layout != kLayoutVersion || hello.record_bytes != sizeof(RecorderFile)) {
    return Failure::failure(fmt::format("its libaccel is another build (record layout {}, here {})",
                                        hello.layout, kLayoutVersion));
  }
  if (text_of(hello.run_id) != run_id_.substr(0, sizeof hello.run_id - 1))
    return Failure::failure("it belongs to another run");
  hello_ = hello;
  return Challenge{nonce_, mac_of(token_, kCoordinatorSide, hello_, nonce_)};
}

bool Reception::accepts(const Proof& proof) const {
  return same(proof.mac, mac_of(token_, kLeaderSide, hello_, nonce_));
}

}  // namespace accel
