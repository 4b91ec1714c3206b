#include "worker/agent/readings/network_meter.h"

#include <algorithm>
#include <utility>

namespace lockstep::worker::agent {
namespace {

NetworkBytes BytesOf(const TcpSocket& socket) {
  return {socket.sent_bytes, socket.received_bytes};
}

}  // namespace

void NetworkBytes::Raise(const NetworkBytes& other) {
  sent = std::max(sent, other.sent);
  received = std::max(received, other.received);
}

NetworkBytes operator+(const NetworkBytes& a, const NetworkBytes& b) {
  return {a.sent + b.sent, a.received + b.received};
}

SocketTable::SocketTable(std::vector<TcpSocket> sockets)
    : sockets_(std::move(sockets)) {
  by_inode_.reserve(sockets_.size());
  by_cookie_.reserve(sockets_.size());
  for (const TcpSocket& socket : sockets_) {
    if (socket.inode != 0) by_inode_.emplace(socket.inode, &socket);
    by_cookie_.emplace(socket.cookie, &socket);
  }
}

const TcpSocket* SocketTable::OfInode(uint64_t inode) const {
  const auto at = by_inode_.find(inode);
  return at == by_inode_.end() ? nullptr : at->second;
}

const TcpSocket* SocketTable::OfCookie(uint64_t cookie) const {
  const auto at = by_cookie_.find(cookie);
  return at == by_cookie_.end() ? nullptr : at->second;
}

void NetworkMeter::TakeSockets(const std::set<uint64_t>& open,
                               const SocketTable& sockets) {
  for (const uint64_t inode : open) {
    if (const TcpSocket* const socket = sockets.OfInode(inode)) {
      open_[socket->cookie].Raise(BytesOf(*socket));
    }
  }
  for (auto it = open_.begin(); it != open_.end();) {
    // One that the rank has closed may still hand over what it has.
    if (const TcpSocket* const socket = sockets.OfCookie(it->first)) {
      it->second.Raise(BytesOf(*socket));
      ++it;
    } else {
      closed_ = closed_ + it->second;
      it = open_.erase(it);
    }
  }
}

NetworkBytes NetworkMeter::total() const {
  NetworkBytes sum = closed_;
  for (const auto& [cookie, bytes] : open_) sum = sum + bytes;
  for (const auto& [inode, bytes] : namespaces_) sum = sum + bytes;
  sum.Raise(adopted_);
  return sum;
}

}  // namespace lockstep::worker::agent
