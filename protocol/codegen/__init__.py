"""Writes the encode and decode function of one message in one version: straight-line source, compiled on first use.

Adjacent fixed-width fields, together with a following length, count or empty tag section, become one precompiled
`Struct`; lengths that fit one varint byte never leave the function; nested structs and arrays are inlined, so a message
is one function call. Values absent from the version get their defaults. To see what runs:

    python -m pylogd.protocol.codegen ProduceRequest 9

Decode trusts nothing: counts are held against the bytes that are left before anything is allocated, and reading past
the end (IndexError, struct.error) or bad UTF-8 surface as ProtocolError. Tagged fields unknown to us are skipped.
"""
