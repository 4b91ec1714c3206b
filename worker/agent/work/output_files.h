// Lists the models and logs that a job left below its output directory, by the
// names that frameworks use.
//
//   kind          files
//   saved_model   a folder with saved_model.pb (or .pbtxt): TensorFlow
//   keras         *.keras, *.h5, *.hdf5
//   safetensors   *.safetensors
//   torch         *.pt, *.pth
//   onnx          *.onnx
//   tensorboard   a folder with events.out.tfevents.*
//   checkpoint    a folder step-N.gG of lockstep, NAME.index with NAME.data-*
//   of
//                 TensorFlow, *.ckpt of Lightning
#ifndef LOCKSTEP_WORKER_AGENT_WORK_OUTPUT_FILES_H_
#define LOCKSTEP_WORKER_AGENT_WORK_OUTPUT_FILES_H_

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/job.h"

namespace lockstep::worker::agent {

struct OutputLimits {
  size_t files = 100;
  // Limits: directory depth, entries, and time.
  int depth = 8;
  size_t entries = 20'000;
  Duration time = std::chrono::seconds(1);
};

// Returns the files sorted by path; if a limit ends the search, those nearest
// to `directory`. Skips names that begin with "." and links. Empty if
// `directory` cannot be read. Blocks as long as its file system does; calls
// `now` in between.
std::vector<OutputFile> FindOutputFiles(const std::string& directory,
                                        const OutputLimits& limits,
                                        const std::function<MonoTime()>& now);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WORK_OUTPUT_FILES_H_
