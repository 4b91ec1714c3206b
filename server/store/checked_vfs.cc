#include "server/store/checked_vfs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "common/base/crc32c.h"
#include "common/base/fd.h"

namespace lockstep::server {
namespace {

constexpr char kTag[4] = {'L', 'K', 'S', 'P'};
constexpr size_t kContentBytes = kPageBytes - kPageCheckBytes;

uint32_t Sum(const char* page, uint32_t number) {
  const unsigned char place[4] = {static_cast<unsigned char>(number),
                                  static_cast<unsigned char>(number >> 8),
                                  static_cast<unsigned char>(number >> 16),
                                  static_cast<unsigned char>(number >> 24)};
  return MaskCrc32c(
      ExtendCrc32c(ExtendCrc32c(0, page, kContentBytes), place, sizeof(place)));
}

void Seal(char* page, uint32_t number) {
  const uint32_t sum = Sum(page, number);
  char* const out = page + kContentBytes;
  memcpy(out, kTag, sizeof(kTag));
  for (int i = 0; i < 4; ++i) {
    out[4 + i] = static_cast<char>(static_cast<unsigned char>(sum >> (8 * i)));
  }
}

bool IsIntact(const char* page, uint32_t number) {
  const char* const end = page + kContentBytes;
  if (memcmp(end, kTag, sizeof(kTag)) != 0) return false;
  uint32_t stored = 0;
  for (int i = 0; i < 4; ++i) {
    stored |= uint32_t{static_cast<unsigned char>(end[4 + i])} << (8 * i);
  }
  return stored == Sum(page, number);
}

uint32_t NumberAt(sqlite3_int64 offset) {
  return static_cast<uint32_t>(offset / kPageBytes) + 1;
}

bool IsWholePage(int size, sqlite3_int64 offset) {
  return size == kPageBytes && offset % kPageBytes == 0;
}

// SQLite allocates szOsFile bytes; the file of the machine's VFS comes behind.
struct CheckedFile {
  sqlite3_file base;
  bool checked;
};

static_assert(sizeof(CheckedFile) % 8 == 0);

CheckedFile* Self(sqlite3_file* file) {
  return reinterpret_cast<CheckedFile*>(file);
}

sqlite3_file* Inner(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(Self(file) + 1);
}

const sqlite3_io_methods* Methods(sqlite3_file* file) {
  return Inner(file)->pMethods;
}

int Close(sqlite3_file* file) { return Methods(file)->xClose(Inner(file)); }

int Read(sqlite3_file* file, void* buffer, int size, sqlite3_int64 offset) {
  const int code = Methods(file)->xRead(Inner(file), buffer, size, offset);
  if (code != SQLITE_OK || !Self(file)->checked) return code;
  if (IsWholePage(size, offset)) {
    return IsIntact(static_cast<const char*>(buffer), NumberAt(offset))
               ? SQLITE_OK
               : SQLITE_IOERR_DATA;
  }
  // SQLite looks at parts of the first page before it reads all of it. Larger
  // parts are pages of another size: the header is damaged.
  return size <= 100 ? SQLITE_OK : SQLITE_IOERR_DATA;
}

int Write(sqlite3_file* file, const void* buffer, int size,
          sqlite3_int64 offset) {
  if (!Self(file)->checked) {
    return Methods(file)->xWrite(Inner(file), buffer, size, offset);
  }
  if (!IsWholePage(size, offset)) return SQLITE_IOERR_WRITE;
  char page[kPageBytes];
  memcpy(page, buffer, kPageBytes);
  Seal(page, NumberAt(offset));
  return Methods(file)->xWrite(Inner(file), page, size, offset);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Methods(file)->xTruncate(Inner(file), size);
}
int Sync(sqlite3_file* file, int flags) {
  return Methods(file)->xSync(Inner(file), flags);
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Methods(file)->xFileSize(Inner(file), size);
}
int Lock(sqlite3_file* file, int level) {
  return Methods(file)->xLock(Inner(file), level);
}
int Unlock(sqlite3_file* file, int level) {
  return Methods(file)->xUnlock(Inner(file), level);
}
int CheckReservedLock(sqlite3_file* file, int* out) {
  return Methods(file)->xCheckReservedLock(Inner(file), out);
}
int FileControl(sqlite3_file* file, int op, void* arg) {
  return Methods(file)->xFileControl(Inner(file), op, arg);
}
int SectorSize(sqlite3_file* file) {
  return Methods(file)->xSectorSize(Inner(file));
}
int Characteristics(sqlite3_file* file) {
  return Methods(file)->xDeviceCharacteristics(Inner(file));
}
int ShmMap(sqlite3_file* file, int page, int size, int extend,
           void volatile** out) {
  return Methods(file)->xShmMap(Inner(file), page, size, extend, out);
}
int ShmLock(sqlite3_file* file, int offset, int n, int flags) {
  return Methods(file)->xShmLock(Inner(file), offset, n, flags);
}
void ShmBarrier(sqlite3_file* file) { Methods(file)->xShmBarrier(Inner(file)); }
int ShmUnmap(sqlite3_file* file, int remove) {
  return Methods(file)->xShmUnmap(Inner(file), remove);
}

// Version 2: without xFetch, so that no page is read past Read().
constexpr sqlite3_io_methods kMethods = {2,
                                         Close,
                                         Read,
                                         Write,
                                         Truncate,
                                         Sync,
                                         FileSize,
                                         Lock,
                                         Unlock,
                                         CheckReservedLock,
                                         FileControl,
                                         SectorSize,
                                         Characteristics,
                                         ShmMap,
                                         ShmLock,
                                         ShmBarrier,
                                         ShmUnmap,
                                         nullptr,
                                         nullptr};

sqlite3_vfs* Machine(sqlite3_vfs* vfs) {
  return static_cast<sqlite3_vfs*>(vfs->pAppData);
}

int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
         int* out_flags) {
  CheckedFile* const self = new (file) CheckedFile{};
  self->checked = (flags & SQLITE_OPEN_MAIN_DB) != 0;
  const int code =
      Machine(vfs)->xOpen(Machine(vfs), name, Inner(file), flags, out_flags);
  // SQLite closes what has methods, also after an error.
  if (Methods(file) != nullptr) self->base.pMethods = &kMethods;
  return code;
}

sqlite3_vfs MakeVfs() {
  sqlite3_vfs* const machine = sqlite3_vfs_find(nullptr);
  sqlite3_vfs vfs = *machine;
  vfs.szOsFile += static_cast<int>(sizeof(CheckedFile));
  vfs.zName = "lockstep-checked";
  vfs.pNext = nullptr;
  vfs.pAppData = machine;
  vfs.xOpen = Open;
  // The rest takes its own VFS only to find its data, which these have none of.
  vfs.xDelete = [](sqlite3_vfs* v, const char* name, int sync) {
    return Machine(v)->xDelete(Machine(v), name, sync);
  };
  vfs.xAccess = [](sqlite3_vfs* v, const char* name, int flags, int* out) {
    return Machine(v)->xAccess(Machine(v), name, flags, out);
  };
  vfs.xFullPathname = [](sqlite3_vfs* v, const char* name, int n, char* out) {
    return Machine(v)->xFullPathname(Machine(v), name, n, out);
  };
  return vfs;
}

}  // namespace

const char* CheckedVfs() {
  static sqlite3_vfs* const vfs = [] {
    auto* made = new sqlite3_vfs(MakeVfs());
    sqlite3_vfs_register(made, 0);
    return made;
  }();
  return vfs->zName;
}

int ReservePageChecks(sqlite3* db) {
  int bytes = kPageCheckBytes;
  const int code =
      sqlite3_exec(db, "PRAGMA page_size = 4096", nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return code;
  return sqlite3_file_control(db, "main", SQLITE_FCNTL_RESERVE_BYTES, &bytes);
}

// https://sqlite.org/fileformat.html, "The Database Header".
StatusOr<PageFormat> PageFormatOf(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return PageFormat::kNone;
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  unsigned char header[100];
  const ssize_t size = ::pread(fd.get(), header, sizeof(header), 0);
  if (size < 0) return ErrnoStatus(errno, "reading " + path);
  if (size == 0) return PageFormat::kNone;
  if (size < static_cast<ssize_t>(sizeof(header)) ||
      memcmp(header, "SQLite format 3", 16) != 0) {
    return PageFormat::kForeign;
  }
  const int page_bytes = header[16] << 8 | header[17];
  const int reserved = header[20];
  if (page_bytes == kPageBytes && reserved == kPageCheckBytes) {
    return PageFormat::kChecked;
  }
  return reserved == 0 ? PageFormat::kPlain : PageFormat::kForeign;
}

}  // namespace lockstep::server
