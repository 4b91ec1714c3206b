// A SQLite VFS whose database files carry a checksum in each page.
//
// SQLite notices damage of its own structures only: a flipped bit in a record's
// bytes is read as if it had been written. Here the last 8 bytes of every page,
// which SQLite leaves to the VFS ("reserved bytes"), hold
//
//   u32  "LKSP"
//   u32  masked CRC32C of the page without its last 8 bytes, then of the page's
//        number (u32): a page that was written to another place is damage, too
//
// little endian. They are made when a page is written and compared when one is
// read; a page that differs gives SQLITE_IOERR_DATA. Journals and write-ahead
// logs go through as they are: SQLite checks their frames itself, and what a
// damaged frame takes with it CommitMark finds out. Other programs read such a
// file, and damage it when they write. Same idea as SQLite's cksumvfs,
// https://sqlite.org/cksumvfs.html.
#ifndef LOCKSTEP_SERVER_STORE_CHECKED_VFS_H_
#define LOCKSTEP_SERVER_STORE_CHECKED_VFS_H_

#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace lockstep::server {

inline constexpr int kPageBytes = 4096;
inline constexpr int kPageCheckBytes = 8;

// The name to open files with; registers the VFS the first time. A file that is
// opened with it must be new, or have been made with it.
const char* CheckedVfs();

// Call for each connection that may write, before anything else: a file that
// is new gets pages with room for checksums.
int ReservePageChecks(sqlite3* db);

enum class PageFormat {
  // There is no file, or an empty one.
  kNone,
  // Of a version that had no checksums.
  kPlain,
  kChecked,
  // The first bytes are no database's that lockstep made.
  kForeign,
};
// By the first bytes of the file.
StatusOr<PageFormat> PageFormatOf(const std::string& path);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_CHECKED_VFS_H_
