// Row counts and digests of the store's tables: what a commit wrote is what a
// later start reads, whatever the pages in between went through.
//
// Each row keeps its own digest, each table the number of its rows and the sum
// of their digests, updated in the same transaction as the rows. A lost, a
// doubled and a changed row all show.
#ifndef LOCKSTEP_SERVER_STORE_ROW_DIGEST_H_
#define LOCKSTEP_SERVER_STORE_ROW_DIGEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::server {

// The first 8 bytes of the SHA-256 of the key's length, the key and the record.
uint64_t RowDigest(std::string_view key, std::string_view record);
// The key of a row that two columns name.
std::string RowKey(std::string_view first, std::string_view second);

struct TableDigest {
  int64_t rows = 0;
  // Of all rows' digests, modulo 2^64: the order of rows does not matter.
  uint64_t sum = 0;

  void Add(uint64_t row) {
    ++rows;
    sum += row;
  }
  void Remove(uint64_t row) {
    --rows;
    sum -= row;
  }
  bool operator==(const TableDigest&) const = default;
};

// By table.
using TableDigests = std::map<std::string, TableDigest>;

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_ROW_DIGEST_H_
