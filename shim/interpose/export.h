// From a list of roles to a C function of the right name and calling convention.
//
//   ACCEL_PARAMETERS(A, B, C) -> A a13, B a12, C a11
//   ACCEL_ARGUMENTS(A, B, C)  -> a13, a12, a11
#pragma once

#define ACCEL_EXPORT extern "C" __attribute__((visibility("default")))

#define ACCEL_P1(type, ...) type a1
#define ACCEL_P2(type, ...) type a2 __VA_OPT__(, ACCEL_P1(__VA_ARGS__))
#define ACCEL_P3(type, ...) type a3 __VA_OPT__(, ACCEL_P2(__VA_ARGS__))
#define ACCEL_P4(type, ...) type a4 __VA_OPT__(, ACCEL_P3(__VA_ARGS__))
#define ACCEL_P5(type, ...) type a5 __VA_OPT__(, ACCEL_P4(__VA_ARGS__))
#define ACCEL_P6(type, ...) type a6 __VA_OPT__(, ACCEL_P5(__VA_ARGS__))
#define ACCEL_P7(type, ...) type a7 __VA_OPT__(, ACCEL_P6(__VA_ARGS__))
#define ACCEL_P8(type, ...) type a8 __VA_OPT__(, ACCEL_P7(__VA_ARGS__))
#define ACCEL_P9(type, ...) type a9 __VA_OPT__(, ACCEL_P8(__VA_ARGS__))
#define ACCEL_P10(type, ...) type a10 __VA_OPT__(, ACCEL_P9(__VA_ARGS__))
#define ACCEL_P11(type, ...) type a11 __VA_OPT__(, ACCEL_P10(__VA_ARGS__))
#define ACCEL_P12(type, ...) type a12 __VA_OPT__(, ACCEL_P11(__VA_ARGS__))
#define ACCEL_P13(type, ...) type a13 __VA_OPT__(, ACCEL_P12(__VA_ARGS__))
#define ACCEL_PARAMETERS(...) ACCEL_P13(__VA_ARGS__)

#define ACCEL_A1(type, ...) a1
#define ACCEL_A2(type, ...) a2 __VA_OPT__(, ACCEL_A1(__VA_ARGS__))
#define ACCEL_A3(type, ...) a3 __VA_OPT__(, ACCEL_A2(__VA_ARGS__))
#define ACCEL_A4(type, ...) a4 __VA_OPT__(, ACCEL_A3(__VA_ARGS__))
#define ACCEL_A5(type, ...) a5 __VA_OPT__(, ACCEL_A4(__VA_ARGS__))
#define ACCEL_A6(type, ...) a6 __VA_OPT__(, ACCEL_A5(__VA_ARGS__))
#define ACCEL_A7(type, ...) a7 __VA_OPT__(, ACCEL_A6(__VA_ARGS__))
#define ACCEL_A8(type, ...) a8 __VA_OPT__(, ACCEL_A7(__VA_ARGS__))
#define ACCEL_A9(type, ...) a9 __VA_OPT__(, ACCEL_A8(__VA_ARGS__))
#define ACCEL_A10(type, ...) a10 __VA_OPT__(, ACCEL_A9(__VA_ARGS__))
#define ACCEL_A11(type, ...) a11 __VA_OPT__(, ACCEL_A10(__VA_ARGS__))
#define ACCEL_A12(type, ...) a12 __VA_OPT__(, ACCEL_A11(__VA_ARGS__))
#define ACCEL_A13(type, ...) a13 __VA_OPT__(, ACCEL_A12(__VA_ARGS__))
#define ACCEL_ARGUMENTS(...) ACCEL_A13(__VA_ARGS__)
