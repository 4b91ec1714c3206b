#include "common/training/machines_file.h"

#include <charconv>
#include <cmath>

#include "common/yaml/yaml_reader.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxCount = 65536;

// "30GiB", "14.4GiB", "512MiB", or a number of bytes.
FieldReader IntoBytes(std::optional<int64_t>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number,
                        std::chars_format::fixed);
    const std::string unit(end, text.data() + text.size());
    const std::map<std::string, int> powers = {
        {"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    const auto power = powers.find(unit);
    if (error != std::errc() || power == powers.end() || !(number >= 0) ||
        std::ldexp(number, power->second) > 9e18) {
      return value.Wrong("is not a size such as 30GiB or 512MiB");
    }
    *out = std::llround(std::ldexp(number, power->second));
    return OkStatus();
  };
}

FieldReader IntoCount(int32_t* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t count, value.Whole(0, kMaxCount));
    *out = static_cast<int32_t>(count);
    return OkStatus();
  };
}

FieldReader IntoAttachable(std::map<std::string, std::vector<int32_t>>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto entries, value.Map());
    for (const auto& [key, counts] : entries) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, key.Text());
      LOCKSTEP_ASSIGN_OR_RETURN(const auto elements, counts.List());
      (*out)[name].clear();
      for (const YamlValue& element : elements) {
        LOCKSTEP_ASSIGN_OR_RETURN(const int64_t count,
                                  element.Whole(1, kMaxCount));
        (*out)[name].push_back(static_cast<int32_t>(count));
      }
    }
    return OkStatus();
  };
}

// {count: 1, type: NVIDIA_TESLA_T4}
FieldReader IntoAccelerator(std::string* type, int32_t* count) {
  return [type, count](const YamlValue& value) {
    return ReadFields(value, "an accelerator",
                      {{"count", IntoCount(count)}, {"type", Into(type)}});
  };
}

// Overrides fields of *machine.
Status ReadMachine(const YamlValue& value, MachineEntry* machine) {
  std::optional<double> cpus;
  std::optional<int64_t> memory;
  std::optional<double> request_cpus;
  std::optional<int64_t> request_memory;
  LOCKSTEP_RETURN_IF_ERROR(ReadFields(
      value, "a machine type",
      {{"cpus", Into(&cpus)},
       {"memory", IntoBytes(&memory)},
       {"request",
        [&](const YamlValue& request) {
          return ReadFields(request, "a request",
                            {{"cpus", Into(&request_cpus)},
                             {"memory", IntoBytes(&request_memory)}});
        }},
       {"accelerator",
        IntoAccelerator(&machine->accelerator, &machine->accelerator_count)},
       {"attachable", IntoAttachable(&machine->attachable)},
       {"mlUnits", Into(&machine->ml_units_per_hour)}}));
  const bool is_new = machine->nominal == MachineSize{};
  if (is_new && (!cpus || !memory)) {
    return value.Wrong("lacks cpus or memory: both are needed");
  }
  if (cpus) machine->nominal.cpus = machine->request.cpus = *cpus;
  if (memory) {
    machine->nominal.memory_bytes = machine->request.memory_bytes = *memory;
  }
  if (request_cpus) machine->request.cpus = *request_cpus;
  if (request_memory) machine->request.memory_bytes = *request_memory;
  return OkStatus();
}

Status ReadAccelerator(const YamlValue& value, AcceleratorType* accelerator) {
  return ReadFields(value, "an accelerator",
                    {{"model", Into(&accelerator->model)},
                     {"mlUnits", Into(&accelerator->ml_units_per_hour)},
                     {"peakTflops", Into(&accelerator->peak_tflops)}});
}

Status ReadTier(const YamlValue& value, ScaleTier* tier) {
  *tier = {};
  return ReadFields(
      value, "a tier",
      {{"masterType", Into(&tier->master_type)},
       {"masterAccelerator", IntoAccelerator(&tier->master_accelerator,
                                             &tier->master_accelerator_count)},
       {"workerType", Into(&tier->worker_type)},
       {"workerCount", IntoCount(&tier->worker_count)},
       {"parameterServerType", Into(&tier->parameter_server_type)},
       {"parameterServerCount", IntoCount(&tier->parameter_server_count)}});
}

}  // namespace

StatusOr<MachineTable> ReadMachineTable(const YamlValue& root,
                                        const std::string& source,
                                        const std::vector<YamlField>& others) {
  MachineTable table;
  const auto nothing = [](const YamlValue&) { return OkStatus(); };
  std::optional<bool> defaults;
  std::vector<YamlField> fields = {{"defaults", Into(&defaults)},
                                   {"machines", nothing},
                                   {"accelerators", nothing},
                                   {"tiers", nothing}};
  fields.insert(fields.end(), others.begin(), others.end());
  LOCKSTEP_RETURN_IF_ERROR(ReadFields(root, "the table of machines", fields));
  // The other entries override the defaults, wherever `defaults` stands.
  if (defaults.value_or(false)) table = DefaultMachineTable();
  fields = {{"defaults", nothing},
            {"machines", IntoNamed(&table.machines, &ReadMachine)},
            {"accelerators", IntoNamed(&table.accelerators, &ReadAccelerator)},
            {"tiers", IntoNamed(&table.tiers, &ReadTier)}};
  for (const YamlField& field : others) fields.push_back({field.name, nothing});
  LOCKSTEP_RETURN_IF_ERROR(ReadFields(root, "the table of machines", fields));
  const Status status = CheckMachineTable(table);
  if (!status.ok()) return Annotate(status, source);
  return table;
}

StatusOr<MachineTable> ParseMachinesFile(const std::string& text,
                                         const std::string& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const YamlValue root, LoadYaml(text, source));
  return ReadMachineTable(root, source, {});
}

}  // namespace lockstep
