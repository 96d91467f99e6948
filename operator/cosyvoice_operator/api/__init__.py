"""The custom resource as models: the one source of the CRD, of its defaults and of the API reference."""

GROUP = "tts.cosyvoice.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "CosyVoiceDeployment"
PLURAL = "cosyvoicedeployments"
SINGULAR = "cosyvoicedeployment"
SHORT_NAME = "cvd"
CATEGORIES = ("all", "ai")
