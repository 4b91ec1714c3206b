#include "worker/process_group/channel.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "worker/process_group/deadline.h"
#include "worker/process_group/errors.h"
#include "worker/process_group/staging.h"

namespace lockstep::worker::process_group {
namespace {

// Of messages that no receive has come for.
constexpr size_t kMostKeptBytes = size_t{1} << 30;

constexpr char kFreed[] = "the group was freed";

std::string DescribeHeader(const MessageHeader& header) {
  return fmt::format(
      "{} with tag {}",
      DescribeElements(header.count,
                       static_cast<collective::DataType>(header.type),
                       header.of_bool != 0),
      header.tag);
}

size_t ElementOf(const MessageHeader& header) {
  return SizeOf(static_cast<collective::DataType>(header.type));
}

}  // namespace

Channel::Channel(const GroupOptions& options, int peer, bool sends)
    : options_(options),
      peer_(peer),
      sends_(sends),
      link_(options, sends ? options.rank : peer, sends ? peer : options.rank) {
}

Channel::~Channel() {
  bool idle = false;
  {
    MutexLock lock(&mu_);
    idle = !moving_ && queue_.empty();
    // The peer may still be reading the last message.
    if (idle) broken_ = Aborted("{}: {}", options_.label, kFreed);
    changed_.NotifyAll();
  }
  if (!idle) Abort(kFreed);
  std::thread thread;
  {
    MutexLock lock(&mu_);
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

Status Channel::Push(std::shared_ptr<Work> work) {
  Kept kept;
  {
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(broken_);
    const auto it =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& message) {
          return message.header.tag == work->request().tag;
        });
    if (it == kept_.end()) {
      if (!thread_.joinable()) {
        try {
          thread_ = std::thread([this] { Serve(); });
        } catch (const std::system_error& e) {
          return ResourceExhausted("{}: no thread for messages: {}",
                                   options_.label, e.what());
        }
      }
      queue_.push_back(std::move(work));
      changed_.NotifyAll();
      return OkStatus();
    }
    kept = std::move(*it);
    kept_.erase(it);
    kept_bytes_ -= kept.bytes.size();
  }
  Deliver(work.get(), kept);
  return OkStatus();
}

void Channel::Abort(const std::string& reason) {
  link_.Abort(reason);
  (void)Break(Aborted("{}: {}", options_.label, reason));
}

// What the thread works on is not in the queue: it ends that by itself.
Status Channel::Break(const Status& status) {
  std::deque<std::shared_ptr<Work>> ended;
  Status first;
  {
    MutexLock lock(&mu_);
    if (broken_.ok()) broken_ = status;
    first = broken_;
    ended.swap(queue_);
    changed_.NotifyAll();
  }
  for (const std::shared_ptr<Work>& work : ended) work->End(first);
  return first;
}

void Channel::Serve() {
  for (;;) {
    std::shared_ptr<Work> work;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && broken_.ok()) changed_.Wait(&mu_);
      if (!broken_.ok()) return;
      work = queue_.front();
      if (sends_) {
        queue_.pop_front();
        moving_ = true;
      }
    }
    const Request& request = work->request();
    const MonoTime deadline = After(request.timeout);
    Status status;
    try {
      if (sends_) {
        status = Send(request, deadline);
      } else {
        while (status.ok() && !work->ended()) status = TakeMessage(deadline);
      }
    } catch (const std::bad_alloc&) {
      status = ResourceExhausted("{}: no memory", options_.label);
    }
    if (!status.ok()) {
      status = During(status, Describe(request));
      link_.Abort(WithoutLabel(Message(status), options_.label));
      status = Break(status);
    }
    if (sends_) End(work.get(), status);
  }
}

// The user may free the group at once, and then the link is left in peace.
void Channel::End(Work* work, const Status& status) {
  {
    MutexLock lock(&mu_);
    moving_ = false;
  }
  work->End(status);
}

Status Channel::Send(const Request& request, MonoTime deadline) {
  MessageHeader header;
  header.count = request.input.count();
  header.tag = request.tag;
  header.type = static_cast<uint8_t>(request.type);
  header.of_bool = request.named.of_bool ? 1 : 0;
  LOCKSTEP_RETURN_IF_ERROR(link_.Move(&header, sizeof(header), deadline));
  return MoveSpans(request.input, request.element(), deadline);
}

Status Channel::GrowScratch(size_t bytes) {
  try {
    scratch_.resize(std::max(scratch_.size(), bytes));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("{}: no memory for {} bytes of a message",
                             options_.label, bytes);
  }
  return OkStatus();
}

Status Channel::MoveSpans(const SpanList& list, size_t element,
                          MonoTime deadline) {
  const size_t most = kChunkBytes / element;
  for (size_t first = 0; first < list.count(); first += most) {
    const size_t count = std::min(most, list.count() - first);
    if (const auto place = list.Contiguous(first, count)) {
      LOCKSTEP_RETURN_IF_ERROR(link_.Move(*place, count * element, deadline));
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(GrowScratch(count * element));
    if (sends_) list.CopyTo(scratch_.data(), first, count);
    LOCKSTEP_RETURN_IF_ERROR(
        link_.Move(scratch_.data(), count * element, deadline));
    if (!sends_) list.CopyFrom(scratch_.data(), first, count);
  }
  return OkStatus();
}

Status Channel::TakeMessage(MonoTime deadline) {
  MessageHeader header;
  LOCKSTEP_RETURN_IF_ERROR(link_.Move(&header, sizeof(header), deadline));
  const size_t element = ElementOf(header);
  if (element == 0 || header.count > SIZE_MAX / 2 / element) {
    return DataLoss("{}: rank {} sent what is not a message", options_.label,
                    peer_);
  }
  std::shared_ptr<Work> work;
  {
    MutexLock lock(&mu_);
    work = ClaimLocked(header.tag);
    moving_ = true;
  }
  return work != nullptr ? TakeFor(work.get(), header, deadline)
                         : TakeToKeep(header, deadline);
}

Status Channel::TakeFor(Work* work, const MessageHeader& header,
                        MonoTime deadline) {
  const Request& request = work->request();
  const Status fits = CheckFits(request, header);
  if (fits.ok()) {
    Status status = MoveSpans(request.output, request.element(), deadline);
    if (!status.ok()) status = During(status, Describe(request));
    End(work, status);
    return status;
  }
  // Dropped, chunk by chunk.
  const size_t element = ElementOf(header);
  const size_t most = kChunkBytes / element;
  Status status;
  for (size_t first = 0; status.ok() && first < header.count; first += most) {
    const size_t bytes = std::min(most, header.count - first) * element;
    status = GrowScratch(bytes);
    if (status.ok()) status = link_.Move(scratch_.data(), bytes, deadline);
  }
  End(work, fits);
  return status;
}

Status Channel::TakeToKeep(const MessageHeader& header, MonoTime deadline) {
  const size_t bytes = header.count * ElementOf(header);
  {
    MutexLock lock(&mu_);
    if (bytes > kMostKeptBytes - kept_bytes_) {
      return ResourceExhausted(
          "{}: rank {} sent {}, which no receive waits for; at most {} bytes "
          "of such messages are kept",
          options_.label, peer_, DescribeHeader(header), kMostKeptBytes);
    }
  }
  Kept kept{header, std::vector<char>(bytes)};
  const Span whole{kept.bytes.data(), header.count};
  LOCKSTEP_ASSIGN_OR_RETURN(
      const SpanList list,
      SpanList::Of(std::span(&whole, 1), ElementOf(header)));
  LOCKSTEP_RETURN_IF_ERROR(MoveSpans(list, ElementOf(header), deadline));
  std::shared_ptr<Work> work;
  {
    MutexLock lock(&mu_);
    // It may have come meanwhile.
    work = ClaimLocked(header.tag);
    moving_ = false;
    if (work == nullptr) {
      kept_bytes_ += bytes;
      kept_.push_back(std::move(kept));
      return OkStatus();
    }
  }
  Deliver(work.get(), kept);
  return OkStatus();
}

Status Channel::CheckFits(const Request& request,
                          const MessageHeader& header) const {
  const bool same = header.count == request.output.count() &&
                    header.type == static_cast<uint8_t>(request.type) &&
                    (header.of_bool != 0) == request.named.of_bool;
  if (same) return OkStatus();
  return FailedPrecondition("{}: rank {} sent {}, which does not fit this {}",
                            options_.label, peer_, DescribeHeader(header),
                            Describe(request));
}

void Channel::Deliver(Work* work, const Kept& kept) {
  const SpanList& output = work->request().output;
  const Status fits = CheckFits(work->request(), kept.header);
  if (fits.ok()) output.CopyFrom(kept.bytes.data(), 0, output.count());
  work->End(fits);
}

std::shared_ptr<Work> Channel::ClaimLocked(uint32_t tag) {
  const auto it = std::find_if(
      queue_.begin(), queue_.end(),
      [&](const auto& work) { return work->request().tag == tag; });
  if (it == queue_.end()) return nullptr;
  std::shared_ptr<Work> work = *it;
  queue_.erase(it);
  return work;
}

}  // namespace lockstep::worker::process_group
