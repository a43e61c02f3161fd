// Browsers start no workers from file:// addresses. There the search's worker runs in a hidden frame of its own instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
      this.load(url).then(() => {
        this.loaded = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        Object.assign(script, { src: String(url), onload: resolve, onerror: reject });
        this.frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      if (!this.loaded) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
