// The site's machine types, GPUs and scale tiers. Pure values.
//
// A machine type has two sizes. The nominal size is shown and billed. The
// request is what a task reserves on a node, and may be smaller, so that files
// written for large machines run on small ones. GPUs are never scaled.
#ifndef LOCKSTEP_COMMON_TRAINING_MACHINES_H_
#define LOCKSTEP_COMMON_TRAINING_MACHINES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/resources.h"

namespace lockstep {

struct MachineSize {
  double cpus = 0;
  int64_t memory_bytes = 0;

  bool operator==(const MachineSize&) const = default;
};

struct MachineEntry {
  MachineSize nominal;
  MachineSize request;
  // GPUs that the machine always has, as "standard_gpu" does; "" if none.
  std::string accelerator;
  int32_t accelerator_count = 0;
  // Accelerator -> the counts that may be attached.
  std::map<std::string, std::vector<int32_t>> attachable;
  // Without GPUs. Absent if the price is unknown.
  std::optional<double> ml_units_per_hour;

  bool operator==(const MachineEntry&) const = default;
};

struct AcceleratorType {
  // The driver's name of the GPU or a part of it: "Tesla T4".
  std::string model;
  std::optional<double> ml_units_per_hour;  // Of one GPU.
  // Peak 10^12 floating-point operations per second, in the usual training
  // precision. Absent if unknown.
  std::optional<double> peak_tflops = std::nullopt;

  bool operator==(const AcceleratorType&) const = default;
};

struct ScaleTier {
  std::string master_type;
  // GPUs attached to the master.
  std::string master_accelerator;
  int32_t master_accelerator_count = 0;
  std::string worker_type;
  int32_t worker_count = 0;
  std::string parameter_server_type;
  int32_t parameter_server_count = 0;

  bool operator==(const ScaleTier&) const = default;
};

// CUSTOM is not a tier of the table: the job names its machines itself.
inline constexpr char kCustomTier[] = "CUSTOM";

struct MachineTable {
  std::map<std::string, MachineEntry> machines;
  std::map<std::string, AcceleratorType> accelerators;
  std::map<std::string, ScaleTier> tiers;

  bool operator==(const MachineTable&) const = default;
};

// Returns Google's machine types, GPUs, tiers and prices (Americas) as
// published for AI Platform Training. Requests are the nominal sizes.
MachineTable DefaultMachineTable();

// Returns a GPU's peak FLOP per second, from the accelerator with the longest
// match in `model`, the driver's name. Nullopt if none matches.
std::optional<double> PeakFlops(const MachineTable& table,
                                const std::string& model);

// Checks that every name in use is defined, and that counts and sizes are
// valid. InvalidArgument: "tiers.BASIC.masterType: ...".
Status CheckMachineTable(const MachineTable& table);

// One machine of a job: its type with the attached GPUs.
struct Machine {
  std::string type;
  Resources nominal;
  Resources request;
  std::optional<double> ml_units_per_hour;

  bool operator==(const Machine&) const = default;
};

// Returns machine `type` with `count` x `accelerator` attached ("" and 0 for
// none). InvalidArgument names the valid choices. `type_path` and
// `accelerator_path` are the fields that asked ("trainingInput.masterType",
// "trainingInput.masterConfig.acceleratorConfig").
StatusOr<Machine> ResolveMachine(const MachineTable& table,
                                 const std::string& type,
                                 const std::string& accelerator, int64_t count,
                                 const std::string& type_path,
                                 const std::string& accelerator_path);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_MACHINES_H_
