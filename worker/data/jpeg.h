// JPEG files in memory, through libjpeg-turbo.
//
// No input ends the process: errors of the library are returned as DataLoss
// (without a place), and the size in a header is bounded before memory is
// allocated. Safe from any thread.
#ifndef LOCKSTEP_WORKER_DATA_JPEG_H_
#define LOCKSTEP_WORKER_DATA_JPEG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/image.h"

namespace lockstep::worker::data {

// Returns the size and the stored channels of the header. Reads no pixels.
StatusOr<ImageShape> ReadJpegShape(std::string_view jpeg);

// Decodes the whole picture with `channels` 1 (grey) or 3 (RGB), converted if
// it is stored otherwise; 0: 1 for grey, 3 for all else. A picture that is cut
// off or breaks off is DataLoss; stray bytes between segments, common in
// photographs from the web, are not.
StatusOr<Image> DecodeJpeg(std::string_view jpeg, uint32_t channels = 0);

// As above, to `out`, which has room for shape.bytes(). InvalidArgument when
// the picture has another height or width.
Status DecodeJpegTo(std::string_view jpeg, const ImageShape& shape,
                    uint8_t* out);

// `quality` 1 to 100. REQUIRES: 1 or 3 channels.
StatusOr<std::string> EncodeJpeg(const Image& image, int quality);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_JPEG_H_
