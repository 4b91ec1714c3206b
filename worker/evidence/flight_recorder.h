// Asks PyTorch's flight recorder in a rank's processes which collective
// operations they have begun.
//
// The watchdog of ProcessGroupNCCL (torch/csrc/distributed/c10d) makes a named
// pipe for each process, and looks at it about once a second. After a byte has
// come it writes its trace to a file. The two variables below name both: the
// process appends its global rank, and ".pipe" to the first.
//
// The files are in a directory that the rank's user may change at will, so no
// name and no content is trusted. Blocks; safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_FLIGHT_RECORDER_H_
#define LOCKSTEP_WORKER_EVIDENCE_FLIGHT_RECORDER_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/evidence.h"

namespace lockstep::worker::evidence {

inline constexpr char kFlightPipeVariable[] = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";
inline constexpr char kFlightDumpVariable[] = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE";
// The values of both, of a rank whose processes may write in `directory`.
std::string FlightPipePrefix(const std::string& directory);
std::string FlightDumpPrefix(const std::string& directory);

class FlightRecorders {
 public:
  // Asks every process that has a pipe in `directory`. Takes microseconds.
  explicit FlightRecorders(const std::string& directory);

  // Reads what has come so far. True: no answer is missing.
  bool Read();
  // Of all answers so far.
  std::vector<FlightRecord> TakeRecords();

 private:
  struct Asked {
    std::string dump;
    // Of the dump before the question, in nanoseconds; 0: there was none.
    int64_t before = 0;
    bool answered = false;
  };
  std::vector<Asked> asked_;
  std::vector<FlightRecord> records_;
};

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_FLIGHT_RECORDER_H_
