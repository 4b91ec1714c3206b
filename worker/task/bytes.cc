#include "worker/task/bytes.h"

#include <array>
#include <utility>

namespace lockstep::worker::task {
namespace {

constexpr size_t kMagicBytes = 8;
constexpr size_t kHeaderBytes = kMagicBytes + 4 + 4;
constexpr size_t kCrcBytes = 4;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
    }
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

bool Refuse(std::string_view what, std::string_view why, std::string* error) {
  error->assign(what);
  error->append(" is unreadable: ");
  error->append(why);
  return false;
}

}  // namespace

uint32_t Crc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char c : data) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  }
  return ~crc;
}

void ByteWriter::Fixed(uint64_t v, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out_.push_back(static_cast<char>((v >> (8 * i)) & 0xff));
  }
}

void ByteWriter::Str(std::string_view v) {
  U32(static_cast<uint32_t>(v.size()));
  out_.append(v);
}

void ByteWriter::Strs(const std::vector<std::string>& v) {
  U32(static_cast<uint32_t>(v.size()));
  for (const std::string& s : v) Str(s);
}

void ByteWriter::U32s(const std::vector<uint32_t>& v) {
  U32(static_cast<uint32_t>(v.size()));
  for (const uint32_t n : v) U32(n);
}

uint64_t ByteReader::Fixed(int bytes) {
  if (!ok_ || data_.size() < static_cast<size_t>(bytes)) {
    ok_ = false;
    return 0;
  }
  uint64_t v = 0;
  for (int i = 0; i < bytes; ++i) {
    v |= static_cast<uint64_t>(static_cast<uint8_t>(data_[i])) << (8 * i);
  }
  data_.remove_prefix(bytes);
  return v;
}

bool ByteReader::Bool() {
  const uint8_t v = U8();
  if (v > 1) ok_ = false;
  return ok_ && v == 1;
}

std::string ByteReader::Str(size_t limit) {
  const size_t size = U32();
  if (!ok_ || size > limit || size > data_.size()) {
    ok_ = false;
    return std::string();
  }
  std::string s(data_.substr(0, size));
  data_.remove_prefix(size);
  return s;
}

std::vector<std::string> ByteReader::Strs(size_t max_count, size_t limit) {
  std::vector<std::string> all;
  const size_t count = U32();
  // Each element takes at least its length: no count reserves memory that
  // the bytes do not back.
  if (!ok_ || count > max_count || count > data_.size() / 4) {
    ok_ = false;
    return all;
  }
  for (size_t i = 0; i < count && ok_; ++i) all.push_back(Str(limit));
  return all;
}

std::vector<uint32_t> ByteReader::U32s(size_t max_count) {
  std::vector<uint32_t> all;
  const size_t count = U32();
  if (!ok_ || count > max_count || count > data_.size() / 4) {
    ok_ = false;
    return all;
  }
  for (size_t i = 0; i < count; ++i) all.push_back(U32());
  return all;
}

std::string Seal(std::string_view magic, uint32_t version,
                 std::string_view payload) {
  ByteWriter header;
  header.U32(version);
  header.U32(static_cast<uint32_t>(payload.size()));
  std::string out(magic);
  out.append(header.Take());
  out.append(payload);
  ByteWriter tail;
  tail.U32(Crc32c(out));
  out.append(tail.Take());
  return out;
}

bool Unseal(std::string_view what, std::string_view magic, uint32_t version,
            std::string_view bytes, std::string_view* payload,
            std::string* error) {
  if (bytes.size() > kMaxRecordBytes) return Refuse(what, "too long", error);
  if (bytes.size() < kHeaderBytes + kCrcBytes) {
    return Refuse(what, "it is truncated", error);
  }
  if (bytes.substr(0, kMagicBytes) != magic) {
    return Refuse(what, "it has the wrong magic number", error);
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kCrcBytes);
  ByteReader tail(bytes.substr(body.size()));
  ByteReader header(bytes.substr(kMagicBytes));
  const uint32_t found_version = header.U32();
  const uint32_t length = header.U32();
  if (length != body.size() - kHeaderBytes) {
    return Refuse(what, "its length does not match its header", error);
  }
  if (tail.U32() != Crc32c(body)) {
    return Refuse(what, "its checksum is wrong", error);
  }
  if (found_version != version) {
    return Refuse(what, "another version of lockstep wrote it", error);
  }
  *payload = body.substr(kHeaderBytes);
  return true;
}

}  // namespace lockstep::worker::task
