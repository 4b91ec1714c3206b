#include "client/cli/evidence_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/model/rank_list.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

// Of a group; all with -o json.
constexpr int kShownFrames = 12;

// Names of templates fill a screen; -o json has all of them.
constexpr size_t kFunctionWidth = 48;

std::string FunctionText(const v1::StackFrame& frame) {
  std::string text = Printable(frame.function());
  if (VisibleWidth(text) <= kFunctionWidth) return text;
  size_t end = kFunctionWidth - 3;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string PlaceText(const v1::StackFrame& frame) {
  std::string place = frame.file().empty() ? frame.module() : frame.file();
  if (frame.line() > 0) place += fmt::format(":{}", frame.line());
  return Printable(place);
}

std::string FramesText(
    const google::protobuf::RepeatedPtrField<v1::StackFrame>& frames,
    const std::string& indent) {
  std::string text;
  size_t width = 0;
  const int shown = std::min(frames.size(), kShownFrames);
  for (int i = 0; i < shown; ++i) {
    width = std::max(width, VisibleWidth(FunctionText(frames[i])));
  }
  for (int i = 0; i < shown; ++i) {
    text += fmt::format("{}{}  {}\n", indent,
                        PadRight(FunctionText(frames[i]), width),
                        PlaceText(frames[i]));
  }
  if (frames.size() > shown) {
    text += fmt::format("{}... and {} more\n", indent, frames.size() - shown);
  }
  return text;
}

std::string GroupText(const v1::StackGroup& group, const Style& style) {
  const std::string ranks =
      RankList({group.ranks().begin(), group.ranks().end()});
  std::string text = fmt::format("{}{}: {}\n", style.Bold(ranks),
                                 group.odd() ? " (not where most are)" : "",
                                 Printable(group.where()));
  return text + FramesText(group.frames(), "    ") + "\n";
}

std::string ThreadText(const v1::ThreadEvidence& thread) {
  std::string text =
      fmt::format("    thread {} {}", thread.id(), Printable(thread.name()));
  if (!thread.state().empty()) text += ", " + Printable(thread.state());
  if (!thread.system_call().empty()) {
    text += ", in " + Printable(thread.system_call());
  }
  if (!thread.wait_channel().empty()) {
    text += " (" + Printable(thread.wait_channel()) + ")";
  }
  return text + "\n" + FramesText(thread.frames(), "        ");
}

std::string RankText(const v1::RankEvidence& rank, const Style& style) {
  std::string text = style.Bold(fmt::format("rank {}", rank.rank())) +
                     fmt::format(" on {}\n", Printable(rank.node()));
  for (const v1::ProcessEvidence& process : rank.processes()) {
    text += fmt::format("  process {} {}, {}, {} threads, {:.1f} s of cpu, {}",
                        process.pid(), Printable(process.command()),
                        Printable(process.state()), process.thread_count(),
                        process.cpu_seconds(),
                        FormatBytes(process.resident_bytes()));
    if (process.swap_bytes() > 0) {
      text += fmt::format(", {} in swap", FormatBytes(process.swap_bytes()));
    }
    text += "\n";
    if (!process.stack_error().empty()) {
      text += "    " + Printable(process.stack_error()) + "\n";
    }
    for (const v1::ThreadEvidence& thread : process.threads()) {
      text += ThreadText(thread);
    }
  }
  for (const v1::SocketEvidence& socket : rank.sockets()) {
    text += fmt::format("  {} {} to {}, {}, {} unread, {} unsent\n",
                        Printable(socket.protocol()), Printable(socket.local()),
                        Printable(socket.peer()), Printable(socket.state()),
                        FormatBytes(socket.receive_queue()),
                        FormatBytes(socket.send_queue()));
  }
  for (const v1::FlightRecord& record : rank.flight_records()) {
    text += fmt::format("  {} {} of group {}: {}\n",
                        Printable(record.operation()), record.sequence(),
                        Printable(record.group()), Printable(record.state()));
  }
  for (const std::string& note : rank.notes()) {
    text += "  " + Printable(note) + "\n";
  }
  return text + "\n";
}

template <typename List>
std::string Sentences(const std::string& title, const List& sentences,
                      const Style& style) {
  if (sentences.empty()) return "";
  std::string text = style.Bold(title) + "\n";
  for (const std::string& sentence : sentences) {
    text += "    " + Printable(sentence) + "\n";
  }
  return text + "\n";
}

}  // namespace

std::string EvidenceText(const v1::JobEvidence& evidence, bool all,
                         const Style& style) {
  std::string text = Printable(evidence.verdict()) + "\n\n";
  for (const v1::StackGroup& group : evidence.groups()) {
    text += GroupText(group, style);
  }
  text += Sentences("What differs", evidence.differences(), style);
  for (const v1::RankEvidence& rank : evidence.ranks()) {
    // Of all processes of a node one answers; of all nodes the first is enough.
    if (rank.nccl_ras().empty()) continue;
    text += Sentences("What NCCL says (RAS)", rank.nccl_ras(), style);
    if (!all) break;
  }
  if (all) {
    for (const v1::RankEvidence& rank : evidence.ranks()) {
      text += RankText(rank, style);
    }
  }
  text += Sentences("Notes", evidence.notes(), style);
  text += Sentences("What would help", evidence.hints(), style);
  text.pop_back();
  return text;
}

}  // namespace lockstep::cli
