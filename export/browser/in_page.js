  const notice = "Images stay on this device.";

  // Returns the URL of a file that this page holds compressed.
  async function locate(name) {
    const packed = Uint8Array.from(atob($(name).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const content = await new Response(stream).blob();
    return URL.createObjectURL(new Blob([content], { type: "text/javascript" }));
  }

  async function open() {
    const classifier = await import(await locate("classifier.js"));
    classifier.locateFiles(locate);
    await classifier.load();
    return classifier;
  }
