#include "worker/shim/rank_output.h"

#include <utility>

namespace lockstep::worker::shim {

bool RankOutput::Open(const task::ShimSpec& spec, std::string* error) {
  return log_.Open(spec.log_path, spec.log_head_bytes, spec.log_tail_bytes,
                   spec.log_append, error);
}

void RankOutput::Attach(Fd out, Fd err, bool keep_last_line) {
  if (keep_last_line) err_.KeepLastLine();
  out_.Attach(std::move(out));
  err_.Attach(std::move(err));
}

void RankOutput::AddFds(std::vector<pollfd>* fds) const {
  fds->push_back({out_.fd(), POLLIN, 0});
  fds->push_back({err_.fd(), POLLIN, 0});
}

void RankOutput::OnReady(const pollfd* fds) {
  if (fds[0].revents != 0) out_.OnReadable();
  if (fds[1].revents != 0) err_.OnReadable();
}

void RankOutput::FlushDue(int64_t now) {
  for (OutputPipe* pipe : {&out_, &err_}) {
    if (pipe->part_due() >= 0 && now >= pipe->part_due()) pipe->FlushPart();
  }
  log_.Flush();
  if (log_.report_due() >= 0 && now >= log_.report_due())
    log_.ReportLostBytes();
}

int64_t RankOutput::NextDeadline() const {
  return EarlierOf(log_.report_due(),
                   EarlierOf(out_.part_due(), err_.part_due()));
}

bool RankOutput::Drain() {
  for (OutputPipe* pipe : {&out_, &err_}) {
    if (pipe->open()) pipe->OnReadable();
  }
  return !out_.open() && !err_.open();
}

void RankOutput::Close(task::ExitRecord* record) {
  out_.Close();
  err_.Close();
  log_.Sync();
  record->log_bytes = log_.end_offset();
  record->log_lost_bytes = log_.lost_bytes();
  record->log_error = log_.error();
}

void RankOutput::Complete(task::ExitRecord* record) {
  if (log_.report_due() < 0) return;
  log_.Sync();
  record->log_bytes = log_.end_offset();
}

}  // namespace lockstep::worker::shim
