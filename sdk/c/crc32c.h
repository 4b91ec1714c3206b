// CRC32C without a library: that of the other programs, ISA-L, has no static
// form, and liblockstep.so needs nothing but libc.
#ifndef LOCKSTEP_SDK_C_CRC32C_H_
#define LOCKSTEP_SDK_C_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace lockstep::c {

// The state of a CRC32C (not inverted, as crc32_iscsi has it) after `size` more
// bytes. By the processor's instruction where it has one, else by a table.
uint32_t AppendCrc32c(uint32_t state, const unsigned char* bytes, size_t size);
// By the table.
uint32_t AppendCrc32cByTable(uint32_t state, const unsigned char* bytes,
                             size_t size);

}  // namespace lockstep::c

#endif  // LOCKSTEP_SDK_C_CRC32C_H_
