// Asking for traces, with a thread in the place of PyTorch's watchdog.
#include "worker/evidence/flight_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace lockstep::worker::evidence {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

std::string Trace() {
  const char* const source = getenv("LOCKSTEP_SOURCE");
  return *RealFileSystem()->Read(
      JoinPath(source == nullptr ? "." : source,
               "worker/evidence/testdata/flight.pickle"),
      1 << 20);
}

class FlightRecorderTest : public testing::Test {
 protected:
  // As ProcessGroupNCCL does: the pipe is open for reading before it is asked.
  Fd MakePipe(const std::string& rank) {
    const std::string path = FlightPipePrefix(dir_) + rank + ".pipe";
    EXPECT_EQ(mkfifo(path.c_str(), 0666), 0);
    return Fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  void Dump(const std::string& rank, const std::string& bytes) {
    ASSERT_TRUE(RealFileSystem()
                    ->WriteAtomic(FlightDumpPrefix(dir_) + rank, bytes)
                    .ok());
  }
  static bool IsAsked(const Fd& pipe) {
    char byte = 0;
    return read(pipe.get(), &byte, 1) == 1;
  }

  FlightRecorderTest() {
    char name[] = "/tmp/flight-test-XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~FlightRecorderTest() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
};

TEST_F(FlightRecorderTest, EachProcessThatAnswersIsRead) {
  const Fd three = MakePipe("3");
  const Fd twelve = MakePipe("12");
  Dump("3", "an older one");
  FlightRecorders recorders(dir_);
  EXPECT_TRUE(IsAsked(three));
  EXPECT_TRUE(IsAsked(twelve));
  EXPECT_FALSE(recorders.Read());
  Dump("3", Trace());
  EXPECT_FALSE(recorders.Read());
  Dump("12", Trace().substr(0, 100));
  EXPECT_FALSE(recorders.Read()) << "it is being written";
  Dump("12", Trace());
  EXPECT_TRUE(recorders.Read());
  EXPECT_THAT(recorders.TakeRecords(), SizeIs(10));
}

TEST_F(FlightRecorderTest, WhereNoProcessListensNothingIsAwaited) {
  // The process of this pipe has ended.
  { const Fd gone = MakePipe("0"); }
  // Of a user who plays.
  ASSERT_EQ(symlink("/dev/null", (FlightPipePrefix(dir_) + "1.pipe").c_str()),
            0);
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(FlightPipePrefix(dir_) + "2.pipe", "")
                  .ok());
  FlightRecorders recorders(dir_);
  EXPECT_TRUE(recorders.Read());
  EXPECT_THAT(recorders.TakeRecords(), IsEmpty());
  EXPECT_EQ(*RealFileSystem()->Read(FlightPipePrefix(dir_) + "2.pipe", 10), "")
      << "a file is not written";
}

TEST_F(FlightRecorderTest, WithoutADirectoryThereIsNothing) {
  FlightRecorders recorders(dir_ + "/none");
  EXPECT_TRUE(recorders.Read());
}

}  // namespace
}  // namespace lockstep::worker::evidence
