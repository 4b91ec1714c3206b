// For tests: what fake_nvml.cc is to say, in the environment and in a file
// that may change while the library is in use.
#ifndef LOCKSTEP_WORKER_DEVICES_FAKE_NVML_CONTROL_H_
#define LOCKSTEP_WORKER_DEVICES_FAKE_NVML_CONTROL_H_

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace lockstep::worker::devices {

class FakeNvmlControl {
 public:
  FakeNvmlControl(int gpus, const std::string& model) {
    char name[] = "/tmp/fake-nvml-XXXXXX";
    close(mkstemp(name));
    path_ = name;
    setenv("FAKE_NVML_GPUS", std::to_string(gpus).c_str(), 1);
    setenv("FAKE_NVML_MODEL", model.c_str(), 1);
    setenv("FAKE_NVML_FILE", path_.c_str(), 1);
    unsetenv("FAKE_NVML_FAIL");
  }
  ~FakeNvmlControl() {
    unsetenv("FAKE_NVML_FILE");
    unlink(path_.c_str());
  }
  FakeNvmlControl(const FakeNvmlControl&) = delete;
  FakeNvmlControl& operator=(const FakeNvmlControl&) = delete;

  // The lines from now on. Renamed into place: a reader sees all or none.
  void Write(const std::string& lines) {
    const std::string next = path_ + ".next";
    std::ofstream(next) << lines;
    (void)rename(next.c_str(), path_.c_str());
  }

 private:
  std::string path_;
};

}  // namespace lockstep::worker::devices

#endif  // LOCKSTEP_WORKER_DEVICES_FAKE_NVML_CONTROL_H_
