// What leaves the house carries no names.
#include "launcher/bundle.h"

#include <gtest/gtest.h>

namespace accel {
namespace {

TEST(Scrubber, TakesNamesAndSecretsOut) {
  Scrubber scrub;
  scrub.add_name("gpu-node-17");
  scrub.add_name("jdoe");
  EXPECT_EQ(scrub("rank 1 on gpu-node-17: /home/jdoe/run"), "rank 1 on xxxxxxxxxxx: /home/xxxx/run");
  EXPECT_EQ(scrub("jdoeson gpu-node-170"), "jdoeson gpu-node-170") << "other words";
  EXPECT_EQ(scrub("{\"HF_TOKEN\": \"abc\", \"NCCL_DEBUG\": \"INFO\"}"),
            "{\"HF_TOKEN\": \"xxx\", \"NCCL_DEBUG\": \"INFO\"}");
  EXPECT_EQ(scrub("--wandb-api-key=1234 --batch=16"), "--wandb-api-key=xxxx --batch=16");
  EXPECT_EQ(scrub("--api_key=1234 --batch=16"), "--api_key=xxxx --batch=16");
  EXPECT_EQ(scrub("[\"--token\",\n \"abc\"]"), "[\"--token\",\n \"xxx\"]");
  EXPECT_EQ(scrub("tokens: 5"), "tokens: x") << "rather too much than too little";
}

}  // namespace
}  // namespace accel
