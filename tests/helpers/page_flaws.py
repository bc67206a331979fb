"""What stands in a person's way on a page, as Chromium shows it."""

# Roles of elements that need a name for screen readers.
NAMED = {
    *("button", "checkbox", "combobox", "dialog", "image", "link", "listbox", "meter"),
    *("progressbar", "searchbox", "slider", "spinbutton", "textbox"),
}

# Contrast as in WCAG 2.2, 1.4.3: 4.5 to 1, and 3 to 1 for large text. A control that is disabled
# needs none.
_LOW_CONTRAST = """() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  // Paints colours over each other, and returns the values of red, green and blue.
  const painted = (colors) => {
    for (const color of colors) {
      context.fillStyle = color;
      context.fillRect(0, 0, 1, 1);
    }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const low = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const text = texts.currentNode.textContent.trim();
    const options = { opacityProperty: false, visibilityProperty: true };
    if (!text || !element.checkVisibility(options)) continue;
    if (element.closest(":disabled, script")) continue;
    const colors = [];
    let opacity = 1;
    for (let above = element; above; above = above.parentElement) {
      const style = getComputedStyle(above);
      colors.unshift(style.backgroundColor);
      opacity *= Number(style.opacity);
    }
    const style = getComputedStyle(element);
    const ground = painted(["Canvas", ...colors]);
    context.globalAlpha = opacity;
    const color = painted([element instanceof SVGElement ? style.fill : style.color]);
    context.globalAlpha = 1;
    const [dark, bright] = [luminance(ground), luminance(color)].sort((a, b) => a - b);
    const ratio = (bright + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) low.push(`contrast ${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
  }
  return low;
}"""


def flaws_of(chromium, address, prepare=lambda page: None):
    """Returns a line for each flaw of a page 360 pixels wide, in light and in dark colours.

    Flaws are sideways scrolling, controls and pictures without a name, and text of low contrast.

    Args:
        chromium: The browser.
        address: The address of the page.
        prepare: What is done with the open page before it is looked at.
    """
    flaws = []
    for scheme in ("light", "dark"):
        view = {"viewport": {"width": 360, "height": 800}, "color_scheme": scheme}
        context = chromium.new_context(offline=True, **view)
        page = context.new_page()
        page.goto(address)
        prepare(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        found = [f"{width} pixels wide"] if width > 360 else []
        found += page.evaluate(_LOW_CONTRAST)
        nodes = context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
        found += [f"{role} without a name" for role, name in map(_role_and_name, nodes) if not name]
        flaws += [f"{scheme}: {flaw}" for flaw in found]
        context.close()
    return flaws


def _role_and_name(node):
    """Returns the role and the name of a node; other nodes need none, and have "none"."""
    role = node.get("role", {}).get("value")
    if node["ignored"] or role not in NAMED:
        return role, "none"
    return role, node.get("name", {}).get("value", "").strip()
