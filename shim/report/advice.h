// What a person can do about a verdict: a sentence or two, and where README says more.
#pragma once
#include <string>

#include "judge/verdict.h"
#include "record/evidence.h"

namespace accel {

/// One paragraph without a newline at its end; empty where there is nothing to advise.
std::string advice(const Verdict& verdict, const Evidence& evidence);

/// The anchor of README's troubleshooting table that belongs to it.
const char* section_of(const Verdict& verdict);

}  // namespace accel
