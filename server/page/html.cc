#include "server/page/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "common/base/sha256.h"

namespace lockstep::server {
namespace {

constexpr char kStyle[] = R"(
:root{--c0:#0b57b0;--c1:#b3261e;--c2:#0a6b2d;--c3:#8a5a00;--c4:#7b3fb0;--c5:#00707a;--c6:#9c2f73;--c7:#59636e;--warn:#8a5a00;color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#d5dae0;--good:#0a6b2d;--bad:#b3261e;--busy:#0b57b0;--bar:#0b57b0}
@media(prefers-color-scheme:dark){:root{--c0:#7db7ff;--c1:#ff8a80;--c2:#5fd38a;--c3:#e6b450;--c4:#cda4ff;--c5:#5cd0da;--c6:#f49ac9;--c7:#9aa4ae;--warn:#e6b450;--bg:#14171a;--fg:#e3e7eb;--dim:#9aa4ae;--line:#343b42;--good:#5fd38a;--bad:#ff8a80;--busy:#7db7ff;--bar:#7db7ff}}
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
td.where{min-width:6rem}.wide td:first-child{min-width:8rem}
td.n{font-variant-numeric:tabular-nums;white-space:nowrap}
progress{accent-color:var(--bar);width:5rem;max-width:40vw;height:.8rem;vertical-align:middle}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(22rem,100%),1fr));gap:.4rem 1.6rem}
figure{margin:.4rem 0;min-width:0}
figcaption{font-size:.85rem;overflow-wrap:anywhere}
figcaption b{font-weight:600;margin-right:.4rem}
svg{display:block;width:100%}
.plot{border:1px solid var(--line);position:relative}
.plot .top,.plot .low{position:absolute;left:.2rem;font-size:.7rem;line-height:1.2;color:var(--dim);background:var(--bg);opacity:.85;padding:0 .15rem}
.plot .top{top:0}.plot .low{bottom:0}
.times,.scale{display:flex;justify-content:space-between;font-size:.7rem;color:var(--dim)}
.scale{justify-content:flex-start;gap:.1rem;align-items:center;flex-wrap:wrap}
.scale i{width:.8rem;height:.7rem}
path{fill:none;vector-effect:non-scaling-stroke}
path.l{stroke-width:1.5}path.a{opacity:.45}path.h{vector-effect:none;stroke-width:1;stroke:var(--bar)}
.k{white-space:nowrap;font-size:.8rem;margin-right:.5rem}
.k.c0,.k.c1,.k.c2,.k.c3,.k.c4,.k.c5,.k.c6,.k.c7{border-bottom:2px solid}
.k.a0,.k.a1,.k.a2,.k.a3,.k.a4,.k.a5,.k.a6,.k.a7{border-left:.7rem solid;padding-left:.25rem}
.m-restart{stroke:var(--bad);stroke-dasharray:4 2}.m-stall{stroke:var(--warn);stroke-dasharray:2 2}.m-save{stroke:var(--good);stroke-width:2}
.k.m-restart,.k.m-stall,.k.m-save{border-left:3px dashed var(--bad);padding-left:.3rem}.k.m-stall{border-color:var(--warn)}.k.m-save{border-left:3px solid var(--good)}
.grid{display:flex;flex-wrap:wrap;gap:.15rem 1.2rem;margin:.3rem 0}.box{display:inline-flex;align-items:center;gap:.12rem;font-size:.75rem}.box a:first-child{margin-right:.25rem}
.g{border:1px solid var(--line);color:var(--fg);display:inline-block;font-size:.65rem;height:1rem;line-height:.9rem;text-align:center;text-decoration:none;width:1rem}
.g.idle{border-style:dashed;border-color:var(--dim)}.g.fault{background:var(--bad);color:var(--bg)}.g.reclaim{background:var(--warn);color:var(--bg)}.g.silent{color:var(--dim)}
.g.h0{background:color-mix(in srgb,var(--bar) 4%,var(--bg))}.g.h1{background:color-mix(in srgb,var(--bar) 8%,var(--bg))}.g.h2{background:color-mix(in srgb,var(--bar) 14%,var(--bg))}.g.h3{background:color-mix(in srgb,var(--bar) 22%,var(--bg))}.g.h4{background:color-mix(in srgb,var(--bar) 32%,var(--bg))}.g.h5{background:color-mix(in srgb,var(--bar) 43%,var(--bg))}.g.h6{background:color-mix(in srgb,var(--bar) 56%,var(--bg))}.g.h7{background:color-mix(in srgb,var(--bar) 70%,var(--bg))}.g.h8{background:color-mix(in srgb,var(--bar) 85%,var(--bg))}.g.h9{background:color-mix(in srgb,var(--bar) 100%,var(--bg))}
pre{background:color-mix(in srgb,var(--fg) 6%,var(--bg));margin:.4rem 0;overflow-x:auto;padding:.5rem;font-size:.8rem;line-height:1.35}
pre .e{color:var(--bad)}pre .w{color:var(--warn)}
.alarm{border-left:4px solid var(--bad);padding-left:.8rem}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:.5rem 0}nav b{font-weight:600}
form{display:flex;flex-wrap:wrap;gap:.4rem .8rem;align-items:end;padding:.4rem 0}label{font-size:.8rem;color:var(--dim)}
input,select,button{font:inherit;font-size:.9rem;color:inherit;background:var(--bg);border:1px solid var(--line);padding:.15rem .4rem;max-width:100%}
path.c0{stroke:var(--c0)}.k.c0{border-color:var(--c0)}path.a0{fill:var(--c0)}.k.a0{border-color:var(--c0)}
path.c1{stroke:var(--c1)}.k.c1{border-color:var(--c1)}path.a1{fill:var(--c1)}.k.a1{border-color:var(--c1)}
path.c2{stroke:var(--c2)}.k.c2{border-color:var(--c2)}path.a2{fill:var(--c2)}.k.a2{border-color:var(--c2)}
path.c3{stroke:var(--c3)}.k.c3{border-color:var(--c3)}path.a3{fill:var(--c3)}.k.a3{border-color:var(--c3)}
path.c4{stroke:var(--c4)}.k.c4{border-color:var(--c4)}path.a4{fill:var(--c4)}.k.a4{border-color:var(--c4)}
path.c5{stroke:var(--c5)}.k.c5{border-color:var(--c5)}path.a5{fill:var(--c5)}.k.a5{border-color:var(--c5)}
path.c6{stroke:var(--c6)}.k.c6{border-color:var(--c6)}path.a6{fill:var(--c6)}.k.a6{border-color:var(--c6)}
path.c7{stroke:var(--c7)}.k.c7{border-color:var(--c7)}path.a7{fill:var(--c7)}.k.a7{border-color:var(--c7)}
path.h0{opacity:0.04}i.h0{background:var(--bar);opacity:0.04}
path.h1{opacity:0.08}i.h1{background:var(--bar);opacity:0.08}
path.h2{opacity:0.14}i.h2{background:var(--bar);opacity:0.14}
path.h3{opacity:0.22}i.h3{background:var(--bar);opacity:0.22}
path.h4{opacity:0.32}i.h4{background:var(--bar);opacity:0.32}
path.h5{opacity:0.43}i.h5{background:var(--bar);opacity:0.43}
path.h6{opacity:0.56}i.h6{background:var(--bar);opacity:0.56}
path.h7{opacity:0.7}i.h7{background:var(--bar);opacity:0.7}
path.h8{opacity:0.85}i.h8{background:var(--bar);opacity:0.85}
path.h9{opacity:1}i.h9{background:var(--bar);opacity:1}
@media(max-width:45rem){
.wide table,.wide tbody,.wide tr,.wide td{display:block;width:auto}
.wide tr{border-bottom:1px solid var(--line);padding:.4rem 0}
.wide tr:first-child,.wide td:empty{display:none}
.wide td,.wide td:first-child{border:0;min-width:0;padding:.1rem 0;overflow-wrap:anywhere}
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
  SetColumns(cells);
  for (const auto& cell : cells) Element("th", cell);
  return Raw("</tr>\n");
}

Html& Html::SetColumns(std::initializer_list<std::string_view> names) {
  columns_.assign(names.begin(), names.end());
  return *this;
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
                            int status, Refresh refresh) {
  static const std::string policy =
      "default-src 'none'; style-src 'sha256-" +
      absl::Base64Escape(Sha256(kStyle)) +
      "'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
  http::HttpResponse response;
  response.status = status;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {{"Content-Security-Policy", policy},
                      {"Referrer-Policy", "no-referrer"}};
  response.body = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n{}"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n{}</body></html>\n",
      refresh == Refresh::kOften
          ? "<meta http-equiv=\"refresh\" content=\"5\">\n"
          : "",
      EscapeHtml(title), kStyle, body);
  return response;
}

}  // namespace lockstep::server
