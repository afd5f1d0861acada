"""How the page of statistics looks: its style sheet, light and dark. Pure."""

STYLE = """
:root{--ink:#1b1f24;--soft:#5b6570;--line:#d9dee3;--paper:#fff;--card:#f5f7f9;
--good:#2e7d4f;--bad:#b3423a;--open:#a8842c;--one:#3a6ea5}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#98a2ad;--line:#333a42;
--paper:#14171a;--card:#1d2226;--good:#5fb487;--bad:#e0786f;--open:#d6b35c;--one:#7aaede}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:760px;margin:0 auto;padding:32px 20px 80px}
h1{font-size:28px;margin:0}h2{font-size:19px;margin:44px 0 12px}
h3{font-size:15px;margin:24px 0 6px;font-weight:600}
.about,.note,.legend{color:var(--soft);margin:4px 0 12px}.note{font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;
margin-top:20px}
.cards div{background:var(--card);border-radius:8px;padding:12px 14px}
.cards b{display:block;font-size:22px;font-variant-numeric:tabular-nums}
.cards span{color:var(--soft);font-size:13px}
svg{width:100%;min-width:520px;height:auto;display:block}
svg text{fill:var(--ink);font-size:13px}svg .number{fill:var(--soft);font-size:12px}
.axis{stroke:var(--line)}
.c-good{fill:var(--good)}.c-bad{fill:var(--bad)}.c-open{fill:var(--open)}
.c-one{fill:var(--one)}
.legend span{display:inline-block;width:10px;height:10px;border-radius:2px;
margin:0 2px 0 10px}
.k-good{background:var(--good)}.k-bad{background:var(--bad)}.k-open{background:var(--open)}
.wide{overflow-x:auto;margin-top:14px}table{border-collapse:collapse;width:100%;font-size:14px}
th{color:var(--soft);font-weight:500;text-align:right;white-space:nowrap}
td{text-align:right;font-variant-numeric:tabular-nums;border-top:1px solid var(--line)}
th,td{padding:5px 8px}.text{text-align:left}
td.text{min-width:8.5em;max-width:26em;overflow-wrap:anywhere}
@media print{main{max-width:none}section{break-inside:avoid}}
"""
"""The style sheet of the page."""
