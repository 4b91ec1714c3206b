#include "server/page/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "common/base/sha256.h"

namespace lockstep::server {
namespace {

constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#d5dae0;--good:#0a6b2d;--bad:#b3261e;--busy:#0b57b0;--bar:#0b57b0}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e3e7eb;--dim:#9aa4ae;--line:#343b42;--good:#5fd38a;--bad:#ff8a80;--busy:#7db7ff;--bar:#7db7ff}}
*{box-sizing:border-box}
body{background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:76rem;padding:0 1rem 2rem}
header{border-bottom:1px solid var(--line);display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;align-items:baseline;padding:.8rem 0}
h1{font-size:1.2rem;margin:0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
a{color:var(--busy)}
.dim{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}.busy{color:var(--busy)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);unicode-bidi:isolate;overflow-wrap:break-word}
th{color:var(--dim);font-weight:500;white-space:nowrap}
.facts th{width:9rem}
td.n{font-variant-numeric:tabular-nums;white-space:nowrap}
progress{accent-color:var(--bar);width:7rem;max-width:40vw;height:.8rem;vertical-align:middle}
@media(max-width:45rem){
.wide table,.wide tbody,.wide tr,.wide td{display:block;width:auto}
.wide tr{border-bottom:1px solid var(--line);padding:.4rem 0}
.wide tr:first-child,.wide td:empty{display:none}
.wide td{border:0;padding:.1rem 0;overflow-wrap:anywhere}
.wide td::before{content:attr(data-name);color:var(--dim);display:inline-block;width:8.5rem}
.facts th{width:6.5rem}
}
)";

}  // namespace

std::string_view StateClass(std::string_view state) {
  if (state == "RUNNING" || state == "SUCCEEDED" || state == "READY") {
    return "good";
  }
  if (state == "FAILED" || state == "LOST" || state == "UNKNOWN" ||
      state == "QUARANTINED") {
    return "bad";
  }
  return state == "QUEUED" || state == "CANCELLED" || state == "DRAINED"
             ? "dim"
             : "busy";
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') ||
            c == 0x7f) {
          out += "\xef\xbf\xbd";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string EscapePath(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                       c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Html& Html::Raw(std::string_view markup) {
  out_ += markup;
  return *this;
}

Html& Html::Text(std::string_view text) {
  out_ += EscapeHtml(text);
  return *this;
}

Html& Html::Element(std::string_view tag, std::string_view text,
                    std::string_view css_class) {
  out_ += fmt::format("<{}", tag);
  if (!css_class.empty()) out_ += fmt::format(" class=\"{}\"", css_class);
  out_ += fmt::format(">{}</{}>", EscapeHtml(text), tag);
  return *this;
}

Html& Html::Link(std::string_view prefix, std::string_view name) {
  out_ += fmt::format("<a href=\"{}/{}\">{}</a>", prefix, EscapePath(name),
                      EscapeHtml(name));
  return *this;
}

Html& Html::HeadRow(std::initializer_list<std::string_view> cells) {
  out_ += "<tr>";
  columns_.assign(cells.begin(), cells.end());
  for (const auto& cell : cells) Element("th", cell);
  return Raw("</tr>\n");
}

Html& Html::BeginRow() {
  column_ = 0;
  return Raw("<tr>");
}

Html& Html::BeginCell(std::string_view css_class) {
  const std::string name =
      column_ < columns_.size() ? EscapeHtml(columns_[column_]) : "";
  ++column_;
  out_ += fmt::format("<td data-name=\"{}\"", name);
  if (!css_class.empty()) out_ += fmt::format(" class=\"{}\"", css_class);
  return Raw(">");
}

Html& Html::Cell(std::string_view text, std::string_view css_class) {
  return BeginCell(css_class).Text(text).Raw("</td>");
}

Html& Html::Row(std::initializer_list<std::string_view> cells) {
  BeginRow();
  for (const auto& cell : cells) Cell(cell);
  return Raw("</tr>\n");
}

Html& Html::Fact(std::string_view name, std::string_view text) {
  if (text.empty()) return *this;
  return Raw("<tr>").Element("th", name).Element("td", text).Raw("</tr>\n");
}

Html& Html::Bar(double part) {
  part = std::clamp(part, 0.0, 1.0);
  out_ +=
      fmt::format("<progress max=\"1\" value=\"{:.3f}\"></progress> {:.0f} %",
                  part, part * 100);
  return *this;
}

http::HttpResponse HtmlPage(std::string_view title, std::string_view body,
                            int status) {
  static const std::string policy =
      "default-src 'none'; style-src 'sha256-" +
      absl::Base64Escape(Sha256(kStyle)) +
      "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  http::HttpResponse response;
  response.status = status;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {{"Content-Security-Policy", policy},
                      {"Referrer-Policy", "no-referrer"}};
  response.body = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta http-equiv=\"refresh\" content=\"5\">\n"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n{}</body></html>\n",
      EscapeHtml(title), kStyle, body);
  return response;
}

}  // namespace lockstep::server
