#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/cli/describe.h"
#include "common/model/resources.h"

namespace lockstep {
namespace {

std::string Row(const std::string& label, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("{:<12} {}\n", label, text);
}

std::string Heartbeat(const v1::Node& node, WallTime now) {
  if (!node.has_last_heartbeat()) return "-";
  return Age(now - ToWallTime(node.last_heartbeat())) + " ago";
}

// "1.5/4": taken of what there is.
std::string Cpus(const v1::Node& node) {
  return fmt::format("{:g}/{:g}", node.allocated().cpus(),
                     node.capacity().cpus());
}
std::string Memory(const v1::Node& node) {
  return fmt::format("{}/{}", FormatBytes(node.allocated().memory_bytes()),
                     FormatBytes(node.capacity().memory_bytes()));
}
std::string Gpus(const v1::Node& node) {
  return fmt::format("{}/{}", node.allocated().gpus(), node.capacity().gpus());
}

}  // namespace

std::string FormatNodes(const std::vector<v1::Node>& nodes, bool wide,
                        WallTime now, const Style& style) {
  std::vector<std::string> header = {"NAME", "STATE", "CPUS",     "MEMORY",
                                     "GPUS", "JOBS",  "HEARTBEAT"};
  if (wide) {
    header.insert(header.end(),
                  {"BUSY", "FREE", "ADDRESS", "HTTP", "VERSION", "GPU MODEL"});
  }
  header.push_back("WHY");
  std::vector<std::vector<std::string>> rows;
  for (const v1::Node& node : nodes) {
    std::vector<std::string> row = {Printable(node.name()),
                                    style.State(node.state()),
                                    Cpus(node),
                                    Memory(node),
                                    Gpus(node),
                                    fmt::format("{}", node.jobs_size()),
                                    Heartbeat(node, now)};
    if (wide) {
      row.push_back(fmt::format("{:.0f} %", node.cpu_utilization() * 100));
      row.push_back(FormatBytes(node.memory_available_bytes()));
      row.push_back(node.address());
      row.push_back(node.http_address());
      row.push_back(node.version());
      row.push_back(node.gpus_size() > 0 ? Printable(node.gpus(0).model())
                                         : "-");
    }
    row.push_back(Printable(node.message()));
    rows.push_back(std::move(row));
  }
  return RenderTable(header, rows);
}

std::string FormatNode(const v1::Node& node, WallTime now, const Style& style) {
  std::string text = Row("node", style.Bold(Printable(node.name())));
  text += Row("state", style.State(node.state()));
  text += Row("why", Printable(node.message()));
  text += Row("heartbeat", Heartbeat(node, now));
  text += Row("host", Printable(node.hostname()));
  text += Row("address", node.address());
  text += Row("http", node.http_address());
  text += Row("version", Printable(node.version()));
  text += Row("start", fmt::format("{} (boot {})", node.incarnation(),
                                   Printable(node.boot_id())));
  text += Row("cpus", Cpus(node) + " taken");
  text += Row("memory", Memory(node) + " taken");
  text += Row("gpus", Gpus(node) + " taken");
  for (const v1::Gpu& gpu : node.gpus()) {
    text +=
        fmt::format("  {}: {}, {}, {}\n", gpu.index(), Printable(gpu.model()),
                    FormatBytes(gpu.memory_bytes()), Printable(gpu.uuid()));
  }
  text += Row("load", fmt::format("CPU {:.0f} % busy, {} memory available",
                                  node.cpu_utilization() * 100,
                                  FormatBytes(node.memory_available_bytes())));
  text += Row("limits", node.limits_enforced()
                            ? "enforced by cgroups"
                            : "not enforced: a task may use more than it "
                              "asked for");
  return text + Row("jobs", fmt::format("{}", fmt::join(node.jobs(), ", ")));
}

}  // namespace lockstep
