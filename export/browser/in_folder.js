  const notice = "Images stay on this device.";

  async function open() {
    if (location.protocol === "file:") {
      throw new Error("a web server must serve its folder, such as python -m http.server");
    }
    const classifier = await import("./classifier.js");
    await classifier.load();
    return classifier;
  }
