// Traces of PyTorch's flight recorder: recorded of real programs, and damaged.
#include "worker/evidence/flight_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/base/file.h"

namespace lockstep::worker::evidence {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::string Recorded() {
  const char* const source = getenv("LOCKSTEP_SOURCE");
  const auto bytes =
      RealFileSystem()->Read(JoinPath(source == nullptr ? "." : source,
                                      "worker/evidence/testdata/flight.pickle"),
                             1 << 20);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : std::string();
}

// PyTorch 2.15 with Gloo: three all-reduces, a barrier of a second group, and
// an all-reduce that the other rank never joined.
TEST(FlightTraceTest, ARecordedProgram) {
  const auto records = ParseFlightTrace(Recorded());
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(
      *records,
      ElementsAre(
          FlightRecord{"0 (default_pg)", 1, "all_reduce", "completed"},
          FlightRecord{"0 (default_pg)", 2, "all_reduce", "completed"},
          FlightRecord{"0 (default_pg)", 3, "all_reduce", "completed"},
          FlightRecord{"1", 1, "barrier", "completed"},
          FlightRecord{"0 (default_pg)", 4, "all_reduce", "scheduled"}));
}

// A file that is still being written.
TEST(FlightTraceTest, APartOfATraceIsNone) {
  const std::string whole = Recorded();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseFlightTrace(whole.substr(0, size)).ok()) << size;
  }
}

TEST(FlightTraceTest, DamagedTracesAreRefusedOrRead) {
  const std::string whole = Recorded();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char byte : {'\0', '\xff', '(', 'h', 'u', '.'}) {
      std::string damaged = whole;
      damaged[i] = byte;
      const auto records = ParseFlightTrace(damaged);
      if (records.ok()) {
        EXPECT_LE(records->size(), kMaxFlightRecords);
      }
    }
  }
}

TEST(FlightTraceTest, NothingIsCalled) {
  // What `pickle.dumps(os.system)` begins with.
  const auto global =
      ParseFlightTrace(std::string("\x80\x02") + "cposix\nsystem\nq\x00.");
  ASSERT_FALSE(global.ok());
  EXPECT_THAT(Message(global.status()), HasSubstr("is not of a trace"));
}

std::string Text(const std::string& text) {
  return std::string("\x8c") + static_cast<char>(text.size()) + text;
}

TEST(FlightTraceTest, OfEachGroupTheNewestStay) {
  std::string pickle = "\x80\x02}" + Text("entries") + "](";
  for (int i = 1; i <= 100; ++i) {
    pickle += "}(" + Text("collective_seq_id") + "K" + static_cast<char>(i) +
              Text("profiling_name") + Text("nccl:all_gather") + Text("state") +
              Text("completed") + Text("process_group") +
              Text(i <= 4 ? "tp" : "dp") + Text("undefined") + "\x86" + "u";
  }
  pickle += "es.";
  const auto records = ParseFlightTrace(pickle);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_THAT(*records, SizeIs(12));
  EXPECT_EQ(records->front(),
            (FlightRecord{"tp", 1, "all_gather", "completed"}));
  EXPECT_EQ(records->back(),
            (FlightRecord{"dp", 100, "all_gather", "completed"}));
}

}  // namespace
}  // namespace lockstep::worker::evidence
