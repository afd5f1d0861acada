"""The page of statistics in a browser, on a wide screen and on a narrow one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from foldline.projections.stats_html import page_of
from tests.projections.test_stats import same, some_stats

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

MEASURE = """
<script>
const told = [], body = document.body;
const all = (above, wanted) => [...above.querySelectorAll(wanted)];
const box = element => element.getBoundingClientRect();
for (const width of [380, 1200]) {
  const say = what => told.push(`${width} wide: ${what}`);
  body.style.width = `${width}px`;
  if (body.scrollWidth > width) say(`the page is ${body.scrollWidth} wide`);
  for (const cell of all(body, "td.text"))
    if (cell.clientWidth < 80) say(`narrow: ${cell.textContent}`);
  for (const plot of all(body, "svg")) {
    const whole = box(plot), labels = all(plot, "text");
    for (const label of labels) {
      const here = box(label);
      if (here.left < whole.left - 1 || here.right > whole.right + 1)
        say(`cut: ${label.textContent}`);
      if (here.height < 11) say(`small: ${label.textContent}`);
    }
    labels.map(box).forEach((one, n, boxes) => boxes.slice(n + 1).forEach(other => {
      const apart = one.right <= other.left || other.right <= one.left
        || one.bottom <= other.top + 3 || other.bottom <= one.top + 3;
      if (!apart) say(`over each other in ${plot.ariaLabel}`);
    }));
  }
}
body.innerHTML = `<pre>MEASURED ${JSON.stringify(told)}</pre>`;
</script>
"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is installed")
    return found


def test_a_browser_shows_every_label_whole_legible_and_beside_the_others(
    browser: str, tmp_path: Path
) -> None:
    """The page itself forbids scripts, so that the one that measures needs it lifted."""
    page = page_of(some_stats(), clean=same, about="Sessions of a test.")
    measured = page.replace("default-src 'none'", "default-src 'unsafe-inline'")
    assert measured != page
    path = tmp_path / "stats.html"
    path.write_text(measured.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1200,900",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told = re.search(r"MEASURED (.*)</pre>", done.stdout)
    assert told is not None, done.stdout[-2_000:]
    assert told[1] == "[]"
