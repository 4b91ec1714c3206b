#include "worker/agent/evidence/evidence_size.h"

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::worker::agent {
namespace {

// Numbers and the framing of an entry.
constexpr size_t kEntryBytes = 32;

size_t SizeOf(const ThreadEvidence& thread) {
  size_t size = kEntryBytes + thread.name.size() + thread.wait_channel.size() +
                thread.system_call.size() + thread.kernel_stack.size();
  for (const StackFrame& frame : thread.frames) {
    size += kEntryBytes + frame.module.size() + frame.function.size() +
            frame.file.size();
  }
  return size;
}

// How much is kept in each round.
struct Share {
  size_t sockets;
  size_t lines;
  size_t processes;
  size_t threads;
  size_t frames;
};
// With the last one, names and texts of full length fit.
constexpr Share kShares[] = {
    {32, 100, 16, 32, 64}, {16, 50, 8, 16, 32}, {8, 20, 4, 8, 16}};

template <typename T>
void Cut(size_t most, std::vector<T>* list) {
  if (list->size() > most) list->erase(list->begin() + most, list->end());
}

void Keep(const Share& share, RankEvidence* evidence) {
  Cut(share.sockets, &evidence->sockets);
  auto& lines = evidence->log_lines;
  if (lines.size() > share.lines) {
    lines.erase(lines.begin(), lines.end() - share.lines);
  }
  Cut(share.lines, &evidence->nccl_ras);
  Cut(share.processes, &evidence->processes);
  for (ProcessEvidence& process : evidence->processes) {
    // The main thread is not always the first one.
    std::stable_partition(process.threads.begin(), process.threads.end(),
                          [](const ThreadEvidence& t) { return t.main; });
    Cut(share.threads, &process.threads);
    for (ThreadEvidence& thread : process.threads) {
      Cut(share.frames, &thread.frames);
    }
  }
}

}  // namespace

size_t SizeOf(const RankEvidence& evidence) {
  size_t size = 0;
  for (const ProcessEvidence& process : evidence.processes) {
    size += 4 * kEntryBytes + process.command.size() +
            process.stack_source.size() + process.stack_error.size();
    for (const ThreadEvidence& thread : process.threads) size += SizeOf(thread);
  }
  for (const SocketEvidence& socket : evidence.sockets) {
    size += kEntryBytes + socket.protocol.size() + socket.local.size() +
            socket.peer.size() + socket.state.size();
  }
  for (const auto& [name, value] : evidence.readings) {
    size += kEntryBytes + name.size();
  }
  for (const std::string& line : evidence.log_lines) size += 8 + line.size();
  for (const std::string& note : evidence.notes) size += 8 + note.size();
  for (const std::string& line : evidence.nccl_ras) size += 8 + line.size();
  for (const FlightRecord& record : evidence.flight_records) {
    size += kEntryBytes + record.group.size() + record.operation.size() +
            record.state.size();
  }
  return size;
}

void LimitSize(RankEvidence* evidence) {
  if (SizeOf(*evidence) <= kMaxEvidenceBytes) return;
  for (const Share& share : kShares) {
    Keep(share, evidence);
    if (SizeOf(*evidence) <= kMaxEvidenceBytes) break;
  }
  Cut(kMaxEvidenceNotes - 1, &evidence->notes);
  evidence->notes.push_back(
      "it was larger than 1 MiB: threads, sockets and lines are left out");
}

}  // namespace lockstep::worker::agent
