#include "launcher/batch/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace accel {
namespace {

/// The next size below in a series with `steps` sizes from one power of two to the next.
std::int64_t step_below(std::int64_t size, int steps) {
  for (std::int64_t power = std::int64_t{1} << 62; power > 0; power /= 2) {
    if (power >= size * 2) continue;
    for (int i = steps - 1; i >= 0; --i) {
      const std::int64_t candidate = power + power * i / steps;
      if (candidate < size) return candidate;
    }
  }
  return 0;
}

/// Memory as a straight line over the batch, through the last two attempts that say what they needed.
std::optional<std::int64_t> fitting(const SizePolicy& policy, const std::vector<Attempt>& attempts) {
  std::vector<const Attempt*> known;
  for (const Attempt& attempt : attempts) {
    if (attempt.needed > 0 && attempt.total > 0) known.push_back(&attempt);
  }
  if (known.size() < 2) return std::nullopt;
  const Attempt& one = *known[known.size() - 2];
  const Attempt& other = *known.back();
  const auto apart =
      static_cast<double>(micro_batch(policy.rule, one.sizes) - micro_batch(policy.rule, other.sizes));
  const double slope = static_cast<double>(one.needed - other.needed) / apart;
  if (apart == 0 || !(slope > 0)) return std::nullopt;
  const double base =
      static_cast<double>(other.needed) - slope * static_cast<double>(micro_batch(policy.rule, other.sizes));
  return static_cast<std::int64_t>(std::floor((static_cast<double>(other.total) - base) / slope));
}

/// The micro batch to aim at; less than the present one.
std::int64_t target(const SizePolicy& policy, const std::vector<Attempt>& attempts) {
  const std::int64_t now = micro_batch(policy.rule, attempts.back().sizes);
  const std::int64_t half = now / 2;
  std::int64_t wanted = half;
  switch (policy.reduction.kind) {
    case Reduction::Kind::Factor:
      wanted = static_cast<std::int64_t>(std::floor(static_cast<double>(now) * policy.reduction.factor));
      break;
    case Reduction::Kind::Steps:
      wanted = step_below(now, policy.reduction.steps);
      break;
    case Reduction::Kind::Bisect:
      for (const Attempt& attempt : attempts) {
        const std::int64_t ran = attempt.ran ? micro_batch(policy.rule, attempt.sizes) : 0;
        if (ran < now) wanted = std::max(wanted, ran + (now - ran) / 2);
      }
      break;
    case Reduction::Kind::Fit:
      wanted = fitting(policy, attempts).value_or(half);
      break;
  }
  return std::min(wanted, now - 1);
}

/// The largest divisor of `product` that is at most `most`.
std::int64_t divisor_below(std::int64_t product, std::int64_t most) {
  for (std::int64_t divisor = most; divisor > 1; --divisor) {
    if (product % divisor == 0) return divisor;
  }
  return most >= 1 ? 1 : 0;
}

}  // namespace

const char* name_of(Rule rule) {
  switch (rule) {
    case Rule::MicroAndAccumulation:
      return "micro batch and accumulation";
    case Rule::MicroAndGlobal:
      return "micro batch, global batch fixed";
    case Rule::Divided:
      return "batch divided by the accumulation";
    case Rule::GlobalOnly:
      return "global batch only";
    case Rule::Tokens:
      return "tokens";
    case Rule::SelfKeeping:
      return "the program keeps its nominal batch";
    case Rule::BuiltIn:
      return "built-in size";
  }
  return "?";
}

std::int64_t micro_batch(Rule rule, const Sizes& sizes) {
  return rule == Rule::Divided ? sizes.batch / std::max<std::int64_t>(sizes.accumulation, 1) : sizes.batch;
}

std::optional<std::int64_t> examples_a_step(Rule rule, const Sizes& sizes) {
  switch (rule) {
    case Rule::MicroAndAccumulation:
    case Rule::Tokens:
      return sizes.batch * sizes.accumulation;
    case Rule::Divided:
    case Rule::GlobalOnly:
      return sizes.batch;
    default:
      return std::nullopt;
  }
}

std::optional<Reduction> Reduction::parse(const std::string& text) {
  Reduction reduction;
  if (text == "half") return reduction;
  if (text == "bisect" || text == "fit") {
    reduction.kind = text == "fit" ? Kind::Fit : Kind::Bisect;
    return reduction;
  }
  if (text.starts_with("pow2:")) {
    reduction.kind = Kind::Steps;
    const char* const begin = text.data() + 5;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, reduction.steps);
    if (error != std::errc() || stop != end || reduction.steps < 1 || reduction.steps > 16)
      return std::nullopt;
    return reduction;
  }
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, reduction.factor);
  if (error != std::errc() || stop != end || !(reduction.factor > 0 && reduction.factor < 1))
    return std::nullopt;
  return reduction;
}

std::optional<Sizes> next_sizes(const SizePolicy& policy, const std::vector<Attempt>& attempts) {
  const Sizes& now = attempts.back().sizes;
  const std::int64_t before = micro_batch(policy.rule, now);
  const std::int64_t wanted = target(policy, attempts);
  if (wanted < 1) return std::nullopt;
  // What all steps together must come to; a divisor of it keeps it.
  const std::int64_t product = policy.rule == Rule::MicroAndGlobal && now.global > 0 ? now.global
                               : policy.rule == Rule::Divided                        ? now.batch
                                                              : before * now.accumulation;
  const bool accumulates = policy.rule == Rule::MicroAndAccumulation || policy.rule == Rule::Tokens ||
                           policy.rule == Rule::Divided;
  const bool must_divide = policy.rule == Rule::MicroAndGlobal || policy.rule == Rule::Divided;
  std::int64_t micro = wanted;
  if (must_divide || (accumulates && policy.keep != Keep::Off)) {
    micro = divisor_below(product, wanted);
    // One that is far below costs more than a step of slightly another size.
    const bool far = micro * 2 < wanted;
    if (far && policy.keep == Keep::Prefer && !must_divide) micro = wanted;
  }
  if (micro < std::max<std::int64_t>(policy.min_batch, 1)) return std::nullopt;
  Sizes next = now;
  if (policy.rule == Rule::Divided) {
    next.accumulation = product / micro;
  } else {
    next.batch = micro;
    if (accumulates && policy.keep != Keep::Off)
      next.accumulation = std::max<std::int64_t>(1, (product + micro / 2) / micro);
  }
  return next;
}

std::string equation(Rule rule, const Sizes& sizes, int ranks) {
  const char* const unit = rule == Rule::Tokens ? "tokens" : "batch";
  std::string text;
  std::int64_t a_rank = 0;
  switch (rule) {
    case Rule::MicroAndAccumulation:
    case Rule::Tokens:
      text = fmt::format("{} {} × accumulation {}", unit, sizes.batch, sizes.accumulation);
      a_rank = sizes.batch * sizes.accumulation;
      break;
    case Rule::Divided:
      text = fmt::format("batch {} = {} × accumulation {}", sizes.batch, micro_batch(rule, sizes),
                         sizes.accumulation);
      a_rank = sizes.batch;
      break;
    case Rule::MicroAndGlobal:
      return fmt::format("batch {}, global batch {}", sizes.batch, sizes.global);
    case Rule::SelfKeeping:
    case Rule::BuiltIn:
    case Rule::GlobalOnly:
      return fmt::format("batch {}", sizes.batch);
  }
  if (ranks > 0) return fmt::format("{} × {} ranks = {}", text, ranks, a_rank * ranks);
  return rule == Rule::Divided ? text : fmt::format("{} = {}", text, a_rank);
}

}  // namespace accel
