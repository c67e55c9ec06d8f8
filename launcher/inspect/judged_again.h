// A run that is over, judged again from what it left.
#pragma once
#include <optional>
#include <string>

#include "collect/observer.h"
#include "judge/verdict.h"
#include "report/report.h"

namespace accel {

struct JudgedAgain {
  Verdict verdict;
  Report report;
};

/// The first fault that the records of a run support. With the moment of a verdict beside them
/// (verdict.moment) it is the verdict of then, and the report says what it said; without one, as after a
/// power failure, it is what can be concluded now. Nothing where there is no fault.
std::optional<JudgedAgain> judge_again(const RunDirectory& run);

}  // namespace accel
