"""The page of `rlx explain` in a browser: `make test-report`.

    python3 browser_test.py FOLDER [SCREENSHOTS]      # with the pages that make_pages wrote
"""

import json
import sys
import time
import unittest
from pathlib import Path

from webdriver import Browser

FOLDER, SHOTS = None, None
TABS = ["overview", "graph", "passes", "fusion", "dispatch", "memory", "kernels"]
PAGES = ["mlp", "loop", "hostile", "gpt"]

BOXES = "return document.querySelectorAll('#drawing .node').length"
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 1\">"


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = cls.enterClassContext(Browser())

    def setUp(self):
        self.page = None

    def tearDown(self):
        self.assertEqual([e["message"] for e in self.browser.log()], [], "the console is silent")

    def open(self, page):
        b, self.page = self.browser, page
        b.open("about:blank")
        b.open((FOLDER / f"{page}.html").as_uri())
        return b

    def until(self, script, value):
        """Waits for what the browser tells the page when it likes."""
        end = time.monotonic() + 20
        while self.browser.run(script) != value:
            self.assertLess(time.monotonic(), end, f"{script} does not become {value}")
            time.sleep(0.02)

    def shot(self, name):
        if SHOTS:
            self.browser.screenshot(SHOTS / f"{self.page}-{name}.png")

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0]).textContent", selector)

    def count(self, selector):
        return self.browser.run("return document.querySelectorAll(arguments[0]).length", selector)

    def document(self):
        return json.loads(self.text("#data"))

    def choose(self, stage):
        self.browser.run("const s = document.querySelector('#stage'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", stage)

    def poke(self, selector, kind="click"):
        """An event at the first such element, wherever it lies."""
        self.browser.run("document.querySelector(arguments[0]).dispatchEvent(new MouseEvent(arguments[1], {bubbles: true}))", selector, kind)

    def test_every_section_is_filled(self):
        for page in PAGES:
            b = self.open(page)
            for dark in (False, True):
                b.emulate_dark(dark)
                self.until("return document.documentElement.dataset.theme", "dark" if dark else "light")
                for tab in TABS:
                    with self.subTest(page=page, tab=tab, dark=dark):
                        b.click(f"#tab-{tab}")
                        self.shot(f"{tab}{'-dark' if dark else ''}")
                        self.assertTrue(b.run("return document.querySelector(arguments[0]).offsetHeight > 100", f"#section-{tab}"))
                        self.assertGreater(len(self.text(f"#section-{tab}")), 40)
                        for wrong in ("undefined", "NaN", "[object", "null"):
                            self.assertNotIn(wrong, self.text(f"#section-{tab}"))
            b.emulate_dark(False)
            data = self.document()
            self.assertEqual(self.text("#title"), data["name"])
            self.assertEqual(self.count("#section-passes tbody tr"), len(data["passes"]))
            self.assertEqual(self.count("#section-memory rect.buffer"),
                             sum(x["place"] == "arena" and x["first"] >= 0 for x in data["program"]["buffers"]))  # fmt: skip

    def test_stages_are_drawn_on_demand(self):
        b = self.open("mlp")
        self.assertEqual(self.count("#drawing"), 0)
        b.click("#tab-graph")
        data = self.document()
        for s in data["stages"]:
            self.choose(s["stage"])
            nodes = s["graph"]["nodes"]
            shown = [n for n in nodes if n["op"] not in ("param", "constant")]
            self.assertEqual(b.run(BOXES), len(shown), s["stage"])
        self.choose("lir")
        self.assertEqual(b.run(BOXES), len(data["program"]["steps"]))

    def test_groups_fold_and_open(self):
        b = self.open("gpt")
        b.click("#tab-graph")
        folded = b.run(BOXES)
        self.assertLess(folded, 120, "a training step is folded at first")
        group = ".node.group"
        self.poke(f"{group} .sign")
        opened = b.run(BOXES)
        self.assertGreater(opened, folded)
        self.assertEqual(self.count("#drawing .open"), 1)
        self.poke("#drawing .open .sign")
        self.assertEqual(b.run(BOXES), folded)
        self.poke(group, "dblclick")
        self.assertEqual(b.run(BOXES), opened)
        b.click("#unfold")
        data = self.document()
        nodes = next(s for s in data["stages"] if s["stage"] == "optimised")["graph"]["nodes"]
        drawn = sum(n["op"] not in ("param", "constant") for n in nodes)
        self.assertEqual(b.run(BOXES), drawn)
        self.shot("open")
        b.click("#fold")
        self.assertEqual(b.run(BOXES), folded)

    def test_search_finds_and_reveals(self):
        b = self.open("gpt")
        b.click("#tab-graph")
        b.type("#search", "attention_backward")
        nodes = next(s for s in self.document()["stages"] if s["stage"] == "optimised")["graph"]["nodes"]
        found = [i for i, n in enumerate(nodes) if n["op"] == "attention_backward"]
        self.assertEqual(len(found), 12)
        self.assertEqual(self.count("[data-found]"), len(found))
        self.assertGreater(self.count(".node.hit"), 0)
        b.click(f"[data-found='{found[3]}']")
        self.assertEqual(self.count(f".node.selected[data-node='{found[3]}']"), 1)
        self.assertIn("attention_backward", self.text(".side h3"))
        self.shot("found")
        box = b.run("const r = document.querySelector('.node.selected').getBoundingClientRect(); return [r.x, r.y]")
        self.assertTrue(0 < box[0] < 1400 and 0 < box[1] < 900, box)

    def test_details_lead_from_stage_to_stage(self):
        b = self.open("mlp")
        b.click("#tab-graph")
        self.poke(".node.heavy")
        self.assertIn("matmul", self.text(".side h3"))
        self.assertIn("has a kernel of its own", self.text(".side"))
        self.choose("fused")
        self.poke(".node.region")
        self.assertIn("made of", self.text(".side"))
        b.run("[...document.querySelectorAll('.side a')].find((a) => a.textContent.startsWith('open')).click()")
        self.assertNotIn("region", self.text("#drawing"))
        b = self.open("loop")
        b.click("#tab-graph")
        self.poke(".node.control")
        b.run("[...document.querySelectorAll('.side a')].find((a) => a.textContent.startsWith('open')).click()")
        self.assertIn("tanh", self.text("#drawing"))

    def test_zoom_and_pan(self):
        b = self.open("mlp")
        b.click("#tab-graph")
        where = "return document.querySelector('#drawing > g').getAttribute('transform')"
        before = b.run(where)
        b.run("document.querySelector('#drawing').dispatchEvent(new WheelEvent('wheel', {deltaY: -300, clientX: 300, clientY: 300, cancelable: true}))")
        self.assertNotEqual(b.run(where), before)

    def test_tables_sort_and_filter(self):
        b = self.open("gpt")
        b.click("#tab-kernels")
        column = "return [...document.querySelectorAll('#section-kernels tbody tr')].map((r) => Number(r.children[0].textContent))"
        first = "document.querySelectorAll('#section-kernels th')[0].click();"
        b.run(first)
        down = b.run(column)
        b.run(first)
        up = b.run(column)
        self.assertEqual(up, sorted(up))
        self.assertEqual(down, sorted(down, reverse=True))
        self.assertEqual(up[0], 0)
        b.click("#tab-fusion")
        rows = self.count("#section-fusion tbody tr")
        b.type("#section-fusion input", "read elsewhere")
        self.assertLess(self.count("#section-fusion tbody tr"), rows)
        b.click("#section-fusion .chip")
        b.click("#tab-passes")
        b.run("[...document.querySelectorAll('#section-passes tr.click')].find((r) => r.textContent.includes('legalise')).click()")
        self.assertEqual(self.count("#section-passes tr[data-inner]"), 1)
        self.assertIn("layer_norm", self.text("#section-passes tr[data-inner]"))

    def test_hostile_names_are_text(self):
        b = self.open("hostile")
        for tab in TABS:
            b.click(f"#tab-{tab}")
        self.assertIsNone(b.run("return window.hacked ?? null"))
        self.assertEqual(self.count("img"), 0)
        self.assertEqual(self.count("script"), 2)
        self.assertEqual(self.text("#title"), HOSTILE)
        b.click("#tab-graph")
        self.assertIn("</script><script>", self.text("#drawing"))
        self.poke(".node.leaf")
        self.assertIn(HOSTILE, self.text(".side"))
        b.type("#search", "<img")
        self.assertGreater(self.count("[data-found]"), 0)
        self.assertIsNone(b.run("return window.hacked ?? null"))


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        SHOTS = Path(sys.argv[2])
        SHOTS.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=sys.argv[:1])
