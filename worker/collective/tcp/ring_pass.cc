#include "worker/collective/tcp/ring_pass.h"

namespace lockstep::worker::collective::tcp {
namespace {

// What came is used up to a multiple of it: whole elements of any type, and
// whole lines of the cache where the piece begins with one.
constexpr size_t kLine = 64;

}  // namespace

RingPieces::RingPieces(const Vector& vector, int rank, int size,
                       const Plan& plan, bool reduces, bool gathers)
    : count_(vector.count),
      rank_(rank),
      size_(size),
      reducing_(reduces ? size - 1 : 0),
      steps_(reducing_ + (gathers ? size - 1 : 0)),
      segments_(PiecesFor(LargestPart(vector.count, size),
                          plan.chunk / vector.element)),
      ahead_(plan.ahead) {}

// In step s a rank sends the part that it received in the step before.
Range RingPieces::At(const RingCursor& at, bool sent) const {
  const size_t back = Reduces(at) ? at.step() + 1 : at.step() - reducing_;
  const size_t owner = rank_ + 2 * size_ - back - (sent ? 0 : 1);
  return PieceOf(
      PartOf(count_, static_cast<int>(owner % size_), static_cast<int>(size_)),
      segments_, at.segment());
}

RingPass::RingPass(Mesh* mesh, const Plan& plan, const Vector& vector,
                   char* scratch, bool reduces, bool gathers)
    : mesh_(mesh),
      vector_(vector),
      scratch_(scratch),
      pieces_(vector, mesh->rank(), mesh->size(), plan, reduces, gathers),
      out_(pieces_.Begin()),
      in_(out_) {
  EnterOut();
  EnterIn();
  if (mesh->size() > 2) {
    head_out_ = mesh_->To(pieces_.before(), nullptr, 0);
    head_in_ = mesh_->From(pieces_.next(), nullptr, 0);
  }
}

// The pieces go over the streams by turns: the kernel's buffers keep all of
// them busy.
void RingPass::EnterOut() {
  if (out_.done()) return;
  const Range range = pieces_.At(out_, true);
  send_bytes_ = vector_.bytes(range);
  send_ = mesh_->To(pieces_.next(), vector_.at(range.begin), send_bytes_,
                    static_cast<int>(sent_++ % mesh_->links()->streams()));
}

void RingPass::EnterIn() {
  used_ = 0;
  if (in_.done()) return;
  const Range range = pieces_.At(in_, false);
  receive_ =
      mesh_->From(pieces_.before(),
                  pieces_.Reduces(in_) ? scratch_ : vector_.at(range.begin),
                  vector_.bytes(range),
                  static_cast<int>(received_++ % mesh_->links()->streams()));
}

size_t RingPass::SendableBytes() const {
  if (out_.done()) return 0;
  if (out_.step() == 0 || in_.IsBeyond(out_.segment(), out_.step() - 1)) {
    return send_bytes_;
  }
  const bool comes = !in_.done() && in_.segment() == out_.segment() &&
                     in_.step() + 1 == out_.step();
  return comes ? used_ : 0;
}

// An empty piece is not: it may have a header to send.
bool RingPass::IsStarved() const {
  return send_.done == send_.bytes && send_.bytes < send_bytes_;
}

bool RingPass::SendOn() {
  if (out_.done()) return false;
  send_.bytes = SendableBytes();
  if (IsStarved()) return false;
  const bool moved = mesh_->Send(&send_);
  if (send_.done < send_bytes_ || !send_.sent()) return moved;
  out_.Next();
  EnterOut();
  return true;
}

void RingPass::UseWhatCame() {
  const bool all = receive_.done == receive_.bytes;
  const size_t come = all ? receive_.done : receive_.done / kLine * kLine;
  if (pieces_.Reduces(in_) && come > used_) {
    char* const own = vector_.at(pieces_.At(in_, false).begin) + used_;
    vector_.combiner->Combine(own, scratch_ + used_, own,
                              (come - used_) / vector_.element,
                              pieces_.ReducesLast(in_));
  }
  used_ = come;
}

bool RingPass::ReceiveOn() {
  if (in_.done()) return false;
  const bool moved = mesh_->Receive(&receive_);
  if (moved) UseWhatCame();
  if (!receive_.received()) return moved;
  in_.Next();
  EnterIn();
  return true;
}

bool RingPass::Move() {
  bool moved = mesh_->Send(&head_out_);
  moved |= mesh_->Receive(&head_in_);
  moved |= SendOn();
  moved |= ReceiveOn();
  return moved;
}

bool RingPass::done() const {
  return out_.done() && in_.done() && head_out_.sent() && head_in_.received();
}

Status RingPass::Run() {
  const Flow nothing;
  for (;;) {
    const bool moved = Move();
    if (done()) break;
    if (moved && mesh_->error().ok() && !mesh_->links()->IsCut()) {
      mesh_->Resume();
      continue;
    }
    const bool sends = !out_.done() && !IsStarved();
    LOCKSTEP_RETURN_IF_ERROR(mesh_->Pause(sends ? send_ : nothing,
                                          in_.done() ? nothing : receive_,
                                          head_out_, head_in_));
  }
  mesh_->Resume();
  return mesh_->error();
}

}  // namespace lockstep::worker::collective::tcp
