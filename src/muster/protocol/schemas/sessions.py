"""The start of a connection: which versions the broker speaks, and SASL."""

MESSAGES = """
ApiVersionsRequest 0-4 flexible 3+
  clientSoftwareName string 3+
  clientSoftwareVersion string 3+

ApiVersionsResponse 0-4 flexible 3+
  errorCode int16
  apiKeys []struct
    apiKey int16
    minVersion int16
    maxVersion int16
  throttleTimeMs int32 1+
  supportedFeatures []struct 3+ #0
    name string
    minVersion int16
    maxVersion int16
  finalizedFeaturesEpoch int64 3+ #1 =-1
  finalizedFeatures []struct 3+ #2
    name string
    maxVersionLevel int16
    minVersionLevel int16
  zkMigrationReady bool 3+ #3

SaslHandshakeRequest 0-1 flexible none
  mechanism string

SaslHandshakeResponse 0-1 flexible none
  errorCode int16
  mechanisms []string

SaslAuthenticateRequest 0-2 flexible 2+
  authBytes bytes

SaslAuthenticateResponse 0-2 flexible 2+
  errorCode int16
  errorMessage string ?
  authBytes bytes
  sessionLifetimeMs int64 1+
"""
