#include "worker/data/jpeg.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs size_t and FILE before it.
#include <jerror.h>
#include <jpeglib.h>

namespace lockstep::worker::data {
namespace {

// A progressive picture of a few kilobytes can ask for thousands of passes
// over all its pixels; real ones have about ten.
constexpr int kMaxScans = 100;

// The library calls error_exit where it cannot go on and expects it not to
// return: ours jumps back. Between setjmp and a call of the library no frame
// may hold an object with a destructor, for the jump would skip it; therefore
// the functions below that call setjmp are plain C in style.
struct ErrorHandler {
  jpeg_error_mgr base;  // First, so that a cast finds the rest.
  std::jmp_buf escape;
  char text[JMSG_LENGTH_MAX];
  bool broken;  // MeansLoss of a warning.
};

void OnError(j_common_ptr info) {
  auto* handler = reinterpret_cast<ErrorHandler*>(info->err);
  info->err->format_message(info, handler->text);
  std::longjmp(handler->escape, 1);
}

// Warnings that mean that pixels are missing or invented. Others are about
// stray bytes and odd headers.
bool MeansLoss(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
         code == JWRN_MUST_RESYNC || code == JWRN_HUFF_BAD_CODE;
}

void OnMessage(j_common_ptr info, int level) {
  if (level >= 0) return;  // Traces.
  ++info->err->num_warnings;
  auto* handler = reinterpret_cast<ErrorHandler*>(info->err);
  if (!MeansLoss(info->err->msg_code) || handler->broken) return;
  handler->broken = true;
  info->err->format_message(info, handler->text);
}

void OnOutput(j_common_ptr) {}  // Nothing to stderr.

void OnProgress(j_common_ptr info) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= kMaxScans) return;
  auto* handler = reinterpret_cast<ErrorHandler*>(info->err);
  std::snprintf(handler->text, sizeof(handler->text),
                "it has more than %d scans", kMaxScans);
  std::longjmp(handler->escape, 1);
}

void Install(ErrorHandler* handler) {
  jpeg_std_error(&handler->base);
  handler->base.error_exit = OnError;
  handler->base.emit_message = OnMessage;
  handler->base.output_message = OnOutput;
  handler->text[0] = '\0';
  handler->broken = false;
}

Status Damaged(const ErrorHandler& handler) {
  return DataLoss("not a complete JPEG image: {}", handler.text);
}

// One decoder: Header() then, if wanted, Pixels(). The destructor frees what
// the library holds, on every way out.
class Decoder {
 public:
  explicit Decoder(std::string_view jpeg) : jpeg_(jpeg) {
    Install(&handler_);
    info_.err = &handler_.base;
    progress_.progress_monitor = OnProgress;
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool Header() {
    if (setjmp(handler_.escape) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(jpeg_.data()),
                 jpeg_.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  ImageShape stored() const {
    return {info_.image_height, info_.image_width,
            static_cast<uint32_t>(info_.num_components)};
  }
  // `out` has room for the whole picture.
  bool Pixels(uint32_t channels, uint8_t* out) {
    if (setjmp(handler_.escape) != 0) return false;
    info_.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&info_);
    const size_t stride = size_t{info_.output_width} * channels;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = out + info_.output_scanline * stride;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return !handler_.broken;
  }
  const ErrorHandler& handler() const { return handler_; }

 private:
  const std::string_view jpeg_;
  ErrorHandler handler_;
  jpeg_decompress_struct info_ = {};
  jpeg_progress_mgr progress_ = {};
};

class Encoder {
 public:
  Encoder() {
    Install(&handler_);
    info_.err = &handler_.base;
  }
  ~Encoder() {
    jpeg_destroy_compress(&info_);
    std::free(data_);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  bool Encode(const Image& image, int quality) {
    if (setjmp(handler_.escape) != 0) return false;
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &data_, &size_);
    info_.image_height = image.shape.height;
    info_.image_width = image.shape.width;
    info_.input_components = static_cast<int>(image.shape.channels);
    info_.in_color_space = image.shape.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    const size_t stride = size_t{image.shape.width} * image.shape.channels;
    while (info_.next_scanline < info_.image_height) {
      // The library takes rows as not const and does not change them.
      auto* row = const_cast<uint8_t*>(image.pixels.data()) +
                  info_.next_scanline * stride;
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }
  std::string Take() const {
    return std::string(reinterpret_cast<const char*>(data_), size_);
  }
  const ErrorHandler& handler() const { return handler_; }

 private:
  ErrorHandler handler_;
  jpeg_compress_struct info_ = {};
  unsigned char* data_ = nullptr;
  unsigned long size_ = 0;  // NOLINT: the library's type.
};

// Reads the header and checks its size against the limit.
Status ReadHeader(Decoder* decoder) {
  if (!decoder->Header()) return Damaged(decoder->handler());
  ImageShape shape = decoder->stored();
  shape.channels = 3;
  return CheckShape(shape);
}

Status ReadPixels(Decoder* decoder, uint32_t channels, uint8_t* out) {
  if (decoder->stored().channels == 4) {
    return InvalidArgument(
        "the JPEG image is CMYK: convert it to RGB or grayscale");
  }
  if (!decoder->Pixels(channels, out)) return Damaged(decoder->handler());
  return OkStatus();
}

}  // namespace

StatusOr<ImageShape> ReadJpegShape(std::string_view jpeg) {
  Decoder decoder(jpeg);
  LOCKSTEP_RETURN_IF_ERROR(ReadHeader(&decoder));
  return decoder.stored();
}

StatusOr<Image> DecodeJpeg(std::string_view jpeg, uint32_t channels) {
  Decoder decoder(jpeg);
  LOCKSTEP_RETURN_IF_ERROR(ReadHeader(&decoder));
  Image image;
  image.shape = decoder.stored();
  if (channels == 0) channels = image.shape.channels == 1 ? 1 : 3;
  image.shape.channels = channels;
  image.pixels.resize(image.shape.bytes());
  LOCKSTEP_RETURN_IF_ERROR(ReadPixels(&decoder, channels, image.pixels.data()));
  return image;
}

Status DecodeJpegTo(std::string_view jpeg, const ImageShape& shape,
                    uint8_t* out) {
  Decoder decoder(jpeg);
  LOCKSTEP_RETURN_IF_ERROR(ReadHeader(&decoder));
  const ImageShape stored = decoder.stored();
  if (stored.height != shape.height || stored.width != shape.width) {
    return InvalidArgument(
        "the JPEG image is {} x {}, but the data set uses {} x {}",
        stored.height, stored.width, shape.height, shape.width);
  }
  return ReadPixels(&decoder, shape.channels, out);
}

StatusOr<std::string> EncodeJpeg(const Image& image, int quality) {
  if (image.shape.channels != 1 && image.shape.channels != 3) {
    return InvalidArgument("a JPEG image has 1 or 3 channels, not {}",
                           image.shape.channels);
  }
  Encoder encoder;
  if (!encoder.Encode(image, quality)) {
    return Internal("encoding a JPEG image: {}", encoder.handler().text);
  }
  return encoder.Take();
}

}  // namespace lockstep::worker::data
