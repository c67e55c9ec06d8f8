// What the doctor's checks make of what they read.
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/doctor/checks.h"
#include "launcher/doctor/elf_file.h"

namespace accel::doctor {
namespace {

TEST(Doctor, ReadsKernelVersionsAsDistributionsWriteThem) {
  EXPECT_EQ(kernel_version("6.12+pk13.11"), std::pair(6, 12));
  EXPECT_EQ(kernel_version("6.1-arch1"), std::pair(6, 1));
  EXPECT_EQ(kernel_version("5.4.0-150-generic"), std::pair(5, 4));
  EXPECT_EQ(kernel_version("5.15.153.1-microsoft-standard-WSL2"), std::pair(5, 15));
  EXPECT_EQ(kernel_version("rolling"), std::nullopt);
}

TEST(Doctor, ReadsHostFilesOfEveryDialect) {
  EXPECT_EQ(hosts_in("node1 slots=4\nnode2:4\n\n# node3\nuser@node4 # why\nnode1\nfe80::1\n"),
            (std::vector<std::string>{"node1", "node2", "node4", "fe80::1"}));
}

TEST(Doctor, ReadsWhatAProgramNeeds) {
  const auto self = read_elf("/proc/self/exe");
  ASSERT_TRUE(self);
  EXPECT_TRUE(self->dynamic);
  EXPECT_FALSE(self->defines_mpi);
  const auto needed = std::find_if(self->needed.begin(), self->needed.end(),
                                   [](const std::string& name) { return name.starts_with("libc.so"); });
  ASSERT_NE(needed, self->needed.end());
  EXPECT_NE(find_library(*needed, *self), "");
  EXPECT_EQ(find_library("libnosuch.so.9", *self), "");
  EXPECT_FALSE(read_elf("/etc/passwd"));
}

}  // namespace
}  // namespace accel::doctor
