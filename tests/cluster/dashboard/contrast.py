"""JavaScript that finds texts too weak for their ground: relative luminance and contrast as WCAG 2.2 defines them."""

CONTRAST = """(() => {
  const channels = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const luminance = (rgb) => rgb.map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let part = element; part; part = part.parentElement) {
      const { rgb, alpha } = channels(getComputedStyle(part).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const weak = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const style = getComputedStyle(element);
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    if (element.closest('.unseen, .skip, noscript')) continue;
    texts += 1;
    const colour = element.closest('svg') ? style.fill : style.color;
    const both = [luminance(channels(colour).rgb), luminance(ground(element))];
    const [light, dark] = both.sort((one, other) => other - one);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) weak.push(`${walker.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return { texts, weak };
})()"""
