  const notice = "Images stay on this device.";

  const urls = [];

  // Returns the URL of a file that this page holds compressed.
  async function locate(name) {
    const packed = Uint8Array.from(atob($(name).textContent.trim()), (c) => c.charCodeAt(0));
    $(name).remove();  // Its text is as large again.
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const content = await new Response(stream).blob();
    const url = URL.createObjectURL(new Blob([content], { type: "text/javascript" }));
    urls.push(url);
    return url;
  }

  async function open() {
    const classifier = await import(await locate("classifier.js"));
    classifier.locateFiles(locate);
    await classifier.load();
    urls.forEach((url) => URL.revokeObjectURL(url));
    return classifier;
  }
