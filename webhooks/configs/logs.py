"""Log settings that the configurations of several programs contain."""

from __future__ import annotations

from webhooks.configs.typed import Table

TABLE: Table = {
    "LoggingConfiguration": {
        "flushFrequency": "flushes",
        "format": "string?",
        "options": "FormatOptions?",
        "verbosity": "uint32",
        "vmodule": "[]VModuleItem?",
    },
    "FormatOptions": {
        "json": "JSONOptions?",
        "text": "TextOptions?",
    },
    "JSONOptions": {
        "infoBufferSize": "quantity?",
        "splitStream": "bool?",
    },
    "TextOptions": {
        "infoBufferSize": "quantity?",
        "splitStream": "bool?",
    },
    "VModuleItem": {
        "filePattern": "string",
        "verbosity": "uint32",
    },
}
