// What ranks use, as their daemons measure it, compared with what they do.
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class UsageTest : public ClusterTest {
 protected:
  v1::Usage UsageOf(const std::string& name, int rank) {
    const v1::Job job = Get(name);
    for (const v1::TaskStatus& task : job.tasks()) {
      for (const v1::RankStatus& status : task.ranks()) {
        if (status.rank() == rank) return status.usage();
      }
    }
    ADD_FAILURE() << name << " has no rank " << rank;
    return {};
  }
};

constexpr int64_t kBytes = 50'000'000;

// Rank 1 sends kBytes to rank 0, and both stay until the file argv[1] exists.
constexpr char kTalk[] = R"(
import os, socket, sys, time
size, port = 50_000_000, int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    connection, _ = socket.create_server(("", port)).accept()
    while size > 0:
        size -= len(connection.recv(1 << 20))
else:
    while True:
        try:
            connection = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    connection.sendall(b"x" * size)
print("done", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
)";

TEST_F(UsageTest, TheNetworkOfAnyProgramIsCounted) {
  Submit(Program("talk", 2, {"python3", "-c", kTalk, Path("stop")}));
  ASSERT_TRUE(Eventually([&] {
    return HasLine("talk", 0, "done") && HasLine("talk", 1, "done");
  }));
  ASSERT_TRUE(Eventually([&] {
    return UsageOf("talk", 1).network_sent_bytes() >= kBytes &&
           UsageOf("talk", 0).network_received_bytes() >= kBytes;
  }));
  // The opening of a connection may count as a byte.
  EXPECT_LE(UsageOf("talk", 1).network_sent_bytes(), kBytes + 1);
  EXPECT_LE(UsageOf("talk", 0).network_received_bytes(), kBytes + 1);
  EXPECT_LE(UsageOf("talk", 0).network_sent_bytes(), 1);
  EXPECT_LE(UsageOf("talk", 1).network_received_bytes(), 1);
  EXPECT_THAT(Lockstep({"jobs", "describe", "talk"}).out,
              HasSubstr("47.7 MiB out, "));
  WriteFile(Path("stop"), "");
  const v1::Job ended = WaitEnd("talk", v1::JOB_STATE_SUCCEEDED);
  const auto& last = ended.attempts(0).tasks(1).ranks(0).usage();
  EXPECT_GE(last.network_sent_bytes(), kBytes);
}

TEST_F(UsageTest, ASessionIsNotItsRanksWork) {
  Submit(Program("rests", 1, {"sleep", "600"}));
  WaitFor("rests", v1::JOB_STATE_RUNNING);
  const CommandResult spun =
      Lockstep({"exec", "rests", "-n", "--", "python3", "-c",
                "import time\nwhile time.process_time() < 3: pass"});
  ASSERT_EQ(spun.code, 0) << spun.err;
  // Readings of after its end.
  const double ended = UsageOf("rests", 0).seconds();
  ASSERT_TRUE(
      Eventually([&] { return UsageOf("rests", 0).seconds() > ended + 2; }));
  EXPECT_LT(UsageOf("rests", 0).cpu_seconds(), 1);
  EXPECT_EQ(Lockstep({"jobs", "cancel", "rests"}).code, 0);
}

}  // namespace
}  // namespace lockstep
